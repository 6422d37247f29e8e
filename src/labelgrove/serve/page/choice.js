// What a person chooses for a text: ticked suggestions and labels found by search, to copy or send.

import { about, post } from "./api.js";
import { copyButton } from "./curl.js";
import { announce, counted, h, hideProblem, showProblem } from "./dom.js";
import { csvLines } from "./files.js";
import { createPicker } from "./picker.js";

const isAddress = (id) => /^https?:\/\//.test(id);

// `least` is the score from which on labels are proposed, and ticked to begin with; null: none is.
export function createChoice(app, { given, labels, model, least }) {
  const boxes = new Map();
  const scores = new Map(labels.map((label) => [label.id, label.score]));
  const place = h("div");
  const picker = createPicker(place, {
    title: "Your labels",
    help: "Tick suggestions, or search for labels that are missing.",
    groups: () => [],
    changed: () => changed(),
  });
  const sending = app.model().feedback ? feedbackPart() : null;

  function tick(label) {
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${label.name}` });
    box.addEventListener("change", () =>
      box.checked ? picker.add(label.id, label.name) : picker.remove(label.id, false),
    );
    boxes.set(label.id, box);
    return box;
  }

  function changed() {
    for (const [id, box] of boxes) box.checked = picker.has(id);
    formats.disabled = copying.disabled = picker.size() === 0;
    sending?.changed();
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

  function feedbackPart() {
    const button = h("button", { type: "button", class: "primary" });
    const problem = h("div", { class: "problem", role: "alert", hidden: true });
    const sentence = h(
      "p",
      { class: "muted small" },
      "Sending keeps this text, the suggestions and your labels in a file of this service, so that the model can learn from them.",
    );
    let done = false;
    async function send() {
      hideProblem(problem);
      button.disabled = true;
      const body = {
        text: given.document,
        labels: picker.values(),
        suggestions: labels.map(({ id, score }) => ({ id, score })),
        model,
        ...(least === null ? {} : { threshold: least }),
      };
      try {
        await post(about("feedback"), body);
        done = true;
        sentence.textContent = "Your labels are kept. Thank you.";
        announce(sentence.textContent);
      } catch (error) {
        showProblem(problem, error, send);
      }
      button.disabled = done;
    }
    button.addEventListener("click", send);
    return {
      elements: [sentence, problem, h("div", { class: "actions" }, button)],
      changed() {
        done = button.disabled = false;
        const number = picker.size();
        button.textContent = number
          ? `Send ${counted(number, "label")} as feedback`
          : "Send feedback: none fits";
      },
    };
  }

  const element = h(
    "section",
    { class: "card choosing", "aria-label": "Your labels" },
    h("div", { class: "pickers" }, place),
    h("div", { class: "copying" }, formats, copying),
    ...(sending?.elements ?? []),
  );

  return {
    element,
    tick,
    // After all ticks exist. Silently: nobody has chosen anything yet.
    begin() {
      const proposed = least === null ? [] : labels.filter(({ score }) => score >= least);
      picker.fill(proposed.map(({ id, name }) => [id, name]));
    },
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
