// The labels that somebody chose for texts, until the tab is closed, to download together.

import { chosenModel } from "./api.js";
import { byId, counted, h } from "./dom.js";
import { downloadButtons } from "./files.js";

const KEY = `labelgrove-kept-${chosenModel ?? ""}`;
// By text: {given, picks, labels}. `picks` are ticked now, `labels` were sent or kept.
const kept = new Map(JSON.parse(sessionStorage.getItem(KEY) ?? "[]"));
const named = ({ document }) => JSON.stringify(document);

export const picks = (given) => kept.get(named(given))?.picks;
export const keptLabels = (given) => kept.get(named(given))?.labels;

export function pick(given, labels) {
  if (labels.length || picks(given))
    kept.set(named(given), { ...kept.get(named(given)), given, picks: labels });
  store();
}

export function keep(given) {
  kept.set(named(given), { given, picks: picks(given), labels: picks(given) ?? [] });
  store();
  showKept();
}

function forget() {
  if (!confirm("Forget these texts and the labels that you chose for them?")) return;
  kept.clear();
  store();
  showKept();
}

function store() {
  try {
    sessionStorage.setItem(KEY, JSON.stringify([...kept]));
  } catch {
    // Too much for the storage: it is kept until the page is loaded again.
  }
}

export function showKept() {
  const all = [...kept.values()].filter(({ labels }) => labels);
  byId("kept").hidden = !all.length;
  byId("kept").replaceChildren(
    h("span", {}, `${counted(all.length, "text")} with your labels:`),
    ...downloadButtons("Download", "your-labels", "link", () => [
      all.map(({ given }) => given),
      all.map(({ labels }) => labels),
    ]),
    h("button", { type: "button", class: "link", onclick: forget }, "Forget"),
  );
}
