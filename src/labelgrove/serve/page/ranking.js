// The labels of one text, best first, with a line at the threshold; each opens to show why.

import { about, post } from "./api.js";
import { idElement } from "./choice.js";
import { h, MEANING, reaches, score, showProblem } from "./dom.js";
import { whyPanel } from "./why.js";

let rankings = 0;

export function createRanking(app, { given, labels, kind, timing, least, choice, leaveOut }) {
  const prefix = `label-${(rankings += 1)}`;
  const largest = Math.max(...labels.map((label) => Math.abs(label.score)), 1e-9);
  const share = (value) =>
    kind === "margin" ? Math.max(0, value) / largest : Math.min(1, Math.max(0, value));
  const below = (label) => least !== null && !reaches(label.score, least, kind);
  let open = null;

  function item(label, number) {
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", share(label.score).toFixed(4));
    const button = h(
      "button",
      {
        type: "button",
        class: "label",
        "aria-expanded": "false",
        "aria-controls": `${prefix}-${number}`,
      },
      h(
        "span",
        { class: "name", dir: "auto" },
        label.name,
      ),
      h("span", { class: "number" }, score(label.score, kind)),
      bar,
    );
    const panel = h("div", {
      class: "why",
      id: `${prefix}-${number}`,
      role: "region",
      "aria-label": `Why ${label.name}`,
      hidden: true,
    });
    button.addEventListener("click", () => toggle(button, panel, label));
    return h(
      "li",
      { class: below(label) ? "below" : "" },
      h(
        "div",
        { class: "row" },
        h("label", { class: "tick" }, choice.tick(label)),
        h("h3", {}, button),
      ),
      panel,
    );
  }

  async function toggle(button, panel, label) {
    const opening = panel.hidden;
    if (open !== null) {
      open.panel.hidden = true;
      open.button.setAttribute("aria-expanded", "false");
      open = null;
    }
    if (!opening) return;
    open = { button, panel };
    panel.hidden = false;
    button.setAttribute("aria-expanded", "true");
    if (!panel.dataset.filled) await fill(panel, label);
  }

  async function fill(panel, label) {
    panel.dataset.filled = "yes";
    panel.replaceChildren(h("p", { class: "muted", "aria-busy": "true" }, "Looking for reasons…"));
    // Only this label: explaining takes longer than predicting, and few labels are opened.
    const { supports, limits } = app.model();
    const request = { texts: [given.document], explain: true };
    if (supports.allow) Object.assign(request, { k: 1, allow: [label.id] });
    else request.k = Math.min(labels.length, limits.max_explained);
    try {
      const { predictions } = await post(about("predict"), request);
      const found = predictions[0].find((one) => one.id === label.id);
      const none = h(
        "p",
        { class: "muted" },
        "The service explains only the first labels of this model.",
      );
      panel.replaceChildren(
        links(label),
        ...(found ? whyPanel(given.text, found.why, treeLink(label)) : [none]),
      );
    } catch (error) {
      delete panel.dataset.filled;
      const place = h("div", { class: "problem", role: "alert" });
      const unsupported = error.code === "not-supported";
      showProblem(place, error, unsupported ? null : () => fill(panel, label));
      panel.replaceChildren(links(label), place);
    }
  }

  const treeLink = (label) =>
    app.model().trees.length
      ? h(
          "p",
          {},
          h("a", { href: `#/tree?${new URLSearchParams({ label: label.id })}` }, "Show in the tree"),
        )
      : null;

  function links(label) {
    return h(
      "p",
      { class: "links" },
      label.id === label.name ? null : idElement(label.id),
      app.model().supports.deny
        ? h(
            "button",
            { type: "button", class: "link", onclick: () => leaveOut(label) },
            "Leave this label out",
          )
        : null,
    );
  }

  const items = labels.map(item);
  const first = labels.findIndex(below);
  const rows = [...items];
  if (first >= 0)
    rows.splice(
      first,
      0,
      h("li", { class: "threshold" }, h("span", { class: "small" }, `Below ${score(least, kind)}`)),
    );
  const list = h("ol", { class: "ranking" }, ...rows);
  // A last row fills the height of the reasons where they are beside the list.
  list.style.gridTemplateRows = `repeat(${rows.length}, auto) 1fr`;
  const took = timing.waiting_ms + timing.predicting_ms;
  const elements = labels.length
    ? [
        ...(first === 0
          ? [
              h(
                "p",
                { class: "notice" },
                "No label reaches the minimum score. These come closest.",
              ),
            ]
          : []),
        list,
        h(
          "p",
          { class: "muted small" },
          `${MEANING[kind]} Found in ${took < 10 ? took.toFixed(1) : Math.round(took)} ms.`,
        ),
      ]
    : [
        h(
          "div",
          { class: "empty" },
          h("p", {}, "No label is left. Allow more labels."),
        ),
      ];
  return {
    elements,
    // Where the reasons are beside the list they hide nothing: the best label's are shown at once.
    openFirst: () =>
      matchMedia("(min-width: 70rem)").matches && items[0]?.querySelector(".label").click(),
  };
}
