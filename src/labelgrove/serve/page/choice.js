// What a person chooses for a text: ticked suggestions and labels found by search, to copy or send.

import { about, post } from "./api.js";
import { copyButton } from "./curl.js";
import { announce, counted, h, hideProblem, lowest, reaches, showProblem } from "./dom.js";
import { csvLines } from "./files.js";
import { keep, pick, picks } from "./kept.js";
import { createPicker } from "./picker.js";

const isAddress = (id) => /^https?:\/\//.test(id);

// `least` is the score from which on labels are proposed; null: none is. `next()` goes on to
// another text.
export function createChoice(app, { given, answer, least, next }) {
  const labels = answer.predictions[0];
  const kind = answer.score_kind;
  const { feedback, ticked } = app.model();
  const boxes = new Map();
  const scores = new Map(labels.map((label) => [label.id, label.score]));
  const proposed = labels.filter((label) => least !== null && reaches(label.score, least, kind));
  const fill = (some) => picker.fill(some.map(({ id, name }) => [id, name]));
  const taking = h(
    "button",
    { type: "button", class: "link", onclick: () => (fill(proposed), sending.focus()) },
    `Take the first ${proposed.length}`,
  );
  const place = h("div", { class: "chosen" });
  const picker = createPicker(place, {
    title: "Your labels",
    help: ["Tick suggestions, or search. ", ...(proposed.length ? [taking] : [])],
    groups: () => [],
    changed: () => changed(),
  });

  function tick(label) {
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${label.name}` });
    box.addEventListener("change", () =>
      box.checked ? picker.add(label.id, label.name) : picker.remove(label.id, false),
    );
    boxes.set(label.id, box);
    return box;
  }

  const rows = () =>
    picker.entries().map(([id, name]) => ({ id, name, score: scores.get(id) ?? null }));
  const written = {
    names: () => rows().map(({ name }) => name).join("\n"),
    ids: () => rows().map(({ id }) => id).join("\n"),
    csv: () =>
      csvLines([["id", "name", "score"], ...rows().map(({ id, name, score }) => [id, name, score ?? ""])]),
    json: () => JSON.stringify(rows(), null, 2),
  };
  const addresses = labels.length > 0 && labels.every(({ id }) => isAddress(id));
  const formats = h(
    "select",
    { "aria-label": "Copy as" },
    new Option("Names", "names"),
    new Option(addresses ? "URIs" : "Ids", "ids"),
    new Option("CSV", "csv"),
    new Option("JSON", "json"),
  );
  const copying = copyButton("Copy", () => written[formats.value]());

  const sending = h("button", { type: "button", class: "primary" });
  const problem = h("div", { class: "problem", role: "alert", hidden: true });
  const sentence = h("p", { class: "muted small" });
  let done = false;

  function changed() {
    for (const [id, box] of boxes) box.checked = picker.has(id);
    formats.disabled = copying.disabled = picker.size() === 0;
    pick(given, rows());
    show(false);
  }

  function show(isDone) {
    done = isDone;
    const verb = feedback ? "Send" : "Keep";
    const number = picker.size();
    sending.className = done || number ? "primary" : "secondary"; // no invitation to send nothing
    sending.textContent = done
      ? "Next text"
      : `${verb} ${number ? counted(number, "label") : "“none fits”"}`;
    const [before, after] = feedback
      ? ["The service keeps what you send.", "Sent."]
      : ["Kept in this tab, to download together.", "Kept."];
    sentence.textContent = done ? after : before;
  }

  async function finish() {
    if (done) return next();
    hideProblem(problem);
    sending.disabled = true;
    try {
      if (feedback)
        await post(about("feedback"), {
          text: given.document,
          labels: picker.values(),
          suggestions: labels.map(({ id, score }) => ({ id, score })),
          model: answer.model,
          ...(least === null ? {} : { threshold: lowest(least, kind) }),
        });
      keep(given);
      show(true);
      announce(sentence.textContent);
    } catch (error) {
      showProblem(problem, error, finish);
    }
    sending.disabled = false;
    sending.focus();
  }
  sending.addEventListener("click", finish);

  return {
    element: h(
      "section",
      { class: "card choosing", "aria-label": "Your labels" },
      place,
      sending,
      h("div", { class: "copying" }, formats, copying),
      sentence,
      problem,
    ),
    tick,
    // After all ticks exist. Silently: nobody has chosen anything yet.
    begin: () => fill(picks(given) ?? (ticked ? proposed : [])),
  };
}

// An id as a link, if it is an address.
export const idElement = (id) =>
  isAddress(id)
    ? h(
        "a",
        { class: "id small", href: id, target: "_blank", rel: "noopener noreferrer" },
        id.replace(/^https?:\/\/(www\.)?/, ""),
      )
    : h("span", { class: "id muted small" }, id);
