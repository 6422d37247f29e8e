// What one text gets: its labels and what a person chooses of them, or the labels of two models.

import { about, chosenModel, post } from "./api.js";
import { createChoice } from "./choice.js";
import { comparison } from "./compare.js";
import { copyButton, curl } from "./curl.js";
import { announce, byId, counted, h, reveal, score } from "./dom.js";
import { createRanking } from "./ranking.js";

// `least` is where the line is, or null; `asked` the request; `back()` a way to where one came from.
export function showAnswer(app, body, { given, answer, least, asked, back, next, leaveOut }) {
  const unknown = answer.unknown.includes(0);
  const labels = answer.predictions[0];
  const kind = answer.score_kind;
  // Labels of an empty text are no proposals, so none is ticked.
  const proposed = unknown ? null : least;
  const choice = createChoice(app, { given, answer, least: proposed, next });
  const timing = answer.timing;
  const ranking = createRanking(app, { given, labels, kind, timing, least, choice, leaveOut });
  const guess =
    "No word of this text tells the model anything. These are the labels of an empty text.";
  const lost = body.contains(document.activeElement);
  const copying = copyButton("Copy as curl", () => curl(about("predict"), asked), "link");
  body.replaceChildren(
    ...(back ? [back()] : []),
    ...(unknown ? [h("p", { class: "notice" }, guess)] : []),
    ...ranking.elements,
    choice.element,
    h("p", { class: "links" }, copying),
  );
  choice.begin();
  ranking.openFirst();
  reveal(byId("results"));
  if (lost) body.querySelector("button")?.focus({ preventScroll: true });
  const best = labels[0];
  const labelled = best
    ? `${counted(labels.length, "label")}. Best: ${best.name}, ${score(best.score, kind)}.`
    : "No labels.";
  announce(unknown ? `${guess} ${labelled}` : labelled);
}

// Asks this model and the one to compare with; one of them may fail.
export async function compare(app, body, given, wanted, signal) {
  const other = byId("against").value;
  const request = { texts: [given.document], ...wanted };
  const answers = await Promise.allSettled(
    [chosenModel, other].map((name) => post(about("predict", name), request, signal)),
  );
  const stopped = answers.find(({ reason }) => reason?.name === "AbortError");
  if (stopped) throw stopped.reason;
  const sides = answers.map(({ value, reason }, number) => ({
    name: number ? other : app.model().name,
    labels: value?.predictions[0],
    kind: value?.score_kind,
    problem: reason && (reason.sentence ?? reason.message),
  }));
  byId("try-columns").classList.remove("wide");
  body.replaceChildren(...comparison(sides));
  reveal(byId("results"));
}
