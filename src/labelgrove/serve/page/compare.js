// The labels that two models find for one text, side by side.

import { counted, h, MEANING, score } from "./dom.js";

// Each side is {name, labels, kind} or {name, problem}.
export function comparison(sides) {
  const [first, second] = sides.map(({ labels = [] }) => labels);
  const known = (list) => new Set(list.flatMap(({ id, name }) => [id, name]));
  const among = sides.map(({ labels = [] }) => known(labels));
  const shared = (label, other) => other.has(label.id) || other.has(label.name);
  const both = first.filter((label) => shared(label, among[1])).length;
  const most = Math.max(first.length, second.length);
  return [
    h(
      "p",
      { class: "lede", role: "status" },
      sides.some(({ problem }) => problem)
        ? "One of the models did not answer."
        : `${counted(both, "label")} of ${most} in both lists.`,
    ),
    h(
      "div",
      { class: "pair" },
      ...sides.map((side, number) => column(side, (label) => shared(label, among[1 - number]))),
    ),
  ];
}

function column({ name, labels = [], kind, problem }, isShared) {
  const items = labels.map((label) => {
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", Math.min(1, Math.max(0, label.score)).toFixed(4));
    return h(
      "li",
      { class: isShared(label) ? "shared" : "" },
      h("span", { class: "name", dir: "auto" }, label.name),
      isShared(label) ? null : h("span", { class: "muted small" }, "only here"),
      h("span", { class: "number" }, score(label.score, kind)),
      kind === "margin" ? null : bar,
    );
  });
  return h(
    "section",
    { class: "card", "aria-label": `Labels of ${name}` },
    h("h3", {}, name),
    problem ? h("p", { class: "problem", role: "alert" }, problem) : null,
    items.length ? h("ol", { class: "plain" }, ...items) : null,
    problem || items.length ? null : h("p", { class: "muted" }, "No label."),
    kind ? h("p", { class: "muted small" }, MEANING[kind]) : null,
  );
}
