// The second view: all labels, searched by name.

import { about, get } from "./api.js";
import { announce, byId, count, counted, debounce, h, hideProblem, showProblem } from "./dom.js";

const FEW = 25;
const MANY = 100; // the most that the service gives

export function startLabels(app, choosing) {
  const query = byId("label-query");
  const list = byId("label-list");
  let asking = null;
  let loaded = false;

  async function search(limit = FEW) {
    asking?.abort();
    asking = new AbortController();
    try {
      const { labels } = await get(about("labels"), { q: query.value.trim(), limit }, asking.signal);
      hideProblem(byId("labels-problem"));
      loaded = true;
      list.replaceChildren(...labels.map(row));
      if (!labels.length)
        list.append(h("li", { class: "muted" }, "No label has this in its name or id."));
      byId("more-labels").hidden =
        labels.length < limit || limit >= MANY || limit >= app.model().labels;
      byId("labels-lede").textContent = query.value.trim()
        ? `${labels.length < limit ? "" : "The first "}${counted(labels.length, "label")} with “${query.value.trim()}”.`
        : `All ${count(app.model().labels)} labels, the most frequent first.`;
      announce(byId("labels-lede").textContent);
    } catch (error) {
      if (error.name !== "AbortError")
        showProblem(byId("labels-problem"), error, () => search(limit));
    }
  }

  function row(label) {
    const act = (name, action, done) =>
      h(
        "button",
        {
          type: "button",
          class: "link",
          "aria-label": `${name}: ${label.name}`,
          title: name === "Only" ? "Allow only this label" : "Leave out this label",
          onclick: () => {
            action(label);
            announce(`${label.name}: ${done}`);
            location.hash = "#/try";
            byId("which").open = true;
          },
        },
        name,
      );
    return h(
      "li",
      {},
      h(
        "div",
        {},
        h("span", { class: "name", dir: "auto" }, label.name),
        label.id === label.name ? null : h("span", { class: "muted small id" }, label.id),
      ),
      h(
        "span",
        { class: "muted small" },
        label.training_documents === null ? "" : counted(label.training_documents, "document"),
      ),
      h(
        "span",
        { class: "links" },
        ...(choosing.masks()
          ? [
              act("Only", choosing.only, "only this may come."),
              act("Never", choosing.never, "left out."),
            ]
          : []),
      ),
    );
  }

  const later = debounce(() => search(), 120);
  query.addEventListener("input", later);
  byId("label-search").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  byId("more-labels").addEventListener("click", () => search(MANY));
  return { show: () => loaded || search() };
}
