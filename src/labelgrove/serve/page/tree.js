// For experts: the label tree, whose branches are fetched when they are opened.
// Keys: arrows, Home, End, Enter.

import { about, get } from "./api.js";
import { announce, byId, count, counted, h, hideProblem, showProblem } from "./dom.js";

const PAGE = 50;
let lines = 0;

export function startTree(app) {
  const root = byId("tree");
  let drawn = null; // which model's tree, and which of them
  let drawing = 0; // how often: what was asked for an earlier one comes too late

  async function draw(toward = null) {
    const { trees, id } = app.model();
    byId("tree-choice").hidden = trees.length < 2;
    root.hidden = !trees.length;
    if (!trees.length) {
      byId("tree-lede").textContent =
        `This ${app.model().method} model has no label tree.`;
      return;
    }
    if (!byId("which-tree").options.length)
      trees.forEach((name, number) => byId("which-tree").append(new Option(name, number)));
    byId("tree-lede").textContent =
      "The model searches from the root down and follows the branches that fit the text best. " +
      "Groups are named after their most frequent labels.";
    const wanted = `${id} ${byId("which-tree").value}`;
    if (drawn === wanted && toward === null) return;
    drawn = wanted;
    drawing += 1;
    root.replaceChildren();
    await fill(root, "root", { label: toward });
  }

  // Fetches children into a list; with a label, opens every branch on the way to it.
  async function fill(list, node, { label = null, offset = 0, first = false } = {}) {
    const level = Number(list.dataset.level ?? 1);
    const mine = drawing;
    list.setAttribute("aria-busy", "true");
    try {
      const page = await get(about("tree"), {
        node,
        label,
        offset,
        limit: PAGE,
        tree: byId("which-tree").value || 0,
      });
      if (mine !== drawing) return;
      hideProblem(byId("tree-problem"));
      const items = page.children.map((child, number) =>
        item(child, level, page.offset + number + 1, page.node.children),
      );
      list.querySelector(":scope > .more")?.remove();
      if (page.offset && !list.children.length)
        list.append(more(list, node, 0, page.offset, level, "before"));
      list.append(...items);
      const shown = page.offset + page.children.length;
      if (shown < page.node.children)
        list.append(more(list, node, shown, page.node.children - shown, level, "more"));
      if (!root.querySelector("[tabindex='0']"))
        root.querySelector("[role=treeitem]")?.setAttribute("tabindex", "0");
      if (first) select(items[0]);
      if (page.toward !== null) await follow(items, page.toward, label);
    } catch (error) {
      if (mine !== drawing) return;
      showProblem(byId("tree-problem"), error, () => {
        drawn = null;
        draw(label);
      });
    } finally {
      if (mine === drawing) list.removeAttribute("aria-busy");
    }
  }

  async function follow(items, toward, label) {
    const next = items.find((one) => one.dataset.node === toward);
    if (next.getAttribute("aria-expanded") !== null) {
      await open(next, label);
      return;
    }
    next.classList.add("sought");
    select(next);
    next.scrollIntoView({ block: "center" });
    announce(`${next.querySelector(".name").textContent} is shown in the tree.`);
  }

  function item(node, level, place, size) {
    const leaf = node.label !== null;
    const detail = leaf
      ? node.label.training_documents === null
        ? ""
        : counted(node.label.training_documents, "document")
      : counted(node.labels, "label");
    const name = leaf ? node.label.name : node.examples.join(", ");
    const extra = !leaf && node.labels > node.examples.length ? "…" : "";
    const line = `tree-line-${(lines += 1)}`;
    return h(
      "li",
      {
        role: "treeitem",
        tabindex: "-1",
        "data-node": node.id,
        "data-level": level,
        "aria-level": level,
        "aria-posinset": place,
        "aria-setsize": size,
        "aria-expanded": leaf ? null : "false",
        "aria-labelledby": line,
      },
      h(
        "div",
        { class: leaf ? "line leaf" : "line", id: line },
        h("span", { class: "twist", "aria-hidden": "true" }),
        h("span", { class: "name", dir: "auto" }, name, extra),
        h("span", { class: "muted small" }, detail),
      ),
    );
  }

  function more(list, node, offset, left, level, where) {
    const words =
      where === "before"
        ? `${count(left)} before these: start from the first`
        : `Show more (${count(left)} left)`;
    return h(
      "li",
      {
        role: "treeitem",
        tabindex: "-1",
        class: where === "before" ? "before" : "more",
        "data-offset": offset,
        "data-of": node,
        "data-level": level,
        "aria-level": level,
      },
      h(
        "div",
        { class: "line" },
        h("span", { class: "twist" }),
        h("span", { class: "name link" }, words),
      ),
    );
  }

  async function open(element, label = null) {
    element.setAttribute("aria-expanded", "true");
    let list = element.querySelector(":scope > ul");
    if (list === null) {
      list = h("ul", { role: "group", "data-level": Number(element.dataset.level) + 1 });
      element.append(list);
      await fill(list, element.dataset.node, { label });
    }
  }

  const close = (element) => element.setAttribute("aria-expanded", "false");

  function activate(element) {
    if (element.dataset.offset !== undefined) {
      const list = element.parentElement;
      const given = { offset: Number(element.dataset.offset), first: true };
      if (element.classList.contains("before")) list.replaceChildren();
      return fill(list, element.dataset.of, given);
    }
    const state = element.getAttribute("aria-expanded");
    if (state === "true") close(element);
    else if (state === "false") open(element);
  }

  function select(element) {
    root.querySelectorAll("[tabindex='0']").forEach((one) => one.setAttribute("tabindex", "-1"));
    element.setAttribute("tabindex", "0");
    element.focus({ preventScroll: true });
    element.querySelector(".line").scrollIntoView({ block: "nearest" });
  }

  const visible = () =>
    [...root.querySelectorAll("[role=treeitem]")].filter(
      (one) => !one.parentElement.closest("[aria-expanded='false']"),
    );

  root.addEventListener("click", (event) => {
    const line = event.target.closest(".line");
    if (!line) return;
    select(line.parentElement);
    activate(line.parentElement);
  });
  root.addEventListener("keydown", (event) => {
    const here = event.target.closest("[role=treeitem]");
    if (!here || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = visible();
    const at = all.indexOf(here);
    const state = here.getAttribute("aria-expanded");
    const above = here.parentElement.closest("[role=treeitem]");
    const moves = {
      ArrowDown: () => all[at + 1] && select(all[at + 1]),
      ArrowUp: () => all[at - 1] && select(all[at - 1]),
      Home: () => select(all[0]),
      End: () => select(all.at(-1)),
      ArrowRight: () => (state === "true" ? all[at + 1] && select(all[at + 1]) : activate(here)),
      ArrowLeft: () => (state === "true" ? close(here) : above && select(above)),
      Escape: () => above && (select(above), close(above)),
      Enter: () => activate(here),
      " ": () => activate(here),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  });
  byId("which-tree").addEventListener("change", () => draw());
  return { show: (query) => draw(query.get("label")) };
}
