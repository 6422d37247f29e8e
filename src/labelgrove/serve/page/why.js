// Why a label: the text with the words that support it, the strongest words; for experts the path.

import { counted, h, score } from "./dom.js";

const WORDS = 8;

export function whyPanel(text, why, treeLink = null) {
  const { members, paths } = why;
  const expert = [...(members.length ? [] : paths.map((path) => pathPart(path, why))), treeLink];
  return [
    highlighted(text, why.highlights),
    ...(members.length
      ? members.map((member) => memberPart(text, member))
      : [wordsPart(why.reasons)]),
    neighboursPart(why.neighbours),
    expert.some(Boolean)
      ? h("details", { class: "member" }, h("summary", {}, "For experts"), ...expert)
      : null,
    why.notes.length ? h("p", { class: "muted small" }, why.notes.join(" ")) : null,
  ].filter(Boolean);
}

// Positions count characters, some of which take two units of a JavaScript string.
export function highlighted(text, highlights) {
  const characters = Array.from(text);
  const pieces = [];
  let place = 0;
  for (const [start, end, strength] of highlights) {
    const share = Math.abs(strength);
    if (share < 0.03) continue;
    pieces.push(characters.slice(place, start).join(""));
    const piece = h(
      "mark",
      {
        class: strength > 0 ? "for" : "against",
        title: strength > 0 ? "speaks for it" : "speaks against it",
      },
      characters.slice(start, end).join(""),
    );
    piece.style.setProperty("--strength", (0.25 + 0.75 * share).toFixed(2));
    pieces.push(piece);
    place = end;
  }
  pieces.push(characters.slice(place).join(""));
  const marked = pieces.length > 1;
  return h(
    "figure",
    { class: "reading" },
    h(
      "blockquote",
      { tabindex: "0", dir: "auto", "aria-label": "The text with the words that counted" },
      ...pieces,
    ),
    h(
      "figcaption",
      { class: "muted small" },
      ...(marked
        ? [
            h("mark", { class: "for" }, "shaded"),
            " words speak for the label, ",
            h("mark", { class: "against" }, "underlined"),
            " ones against it.",
          ]
        : ["No single word of the text made the difference."]),
    ),
  );
}

function wordsPart(reasons) {
  const shown = reasons.slice(0, WORDS);
  if (!shown.length) return null;
  const largest = Math.max(...shown.map((reason) => Math.abs(reason.contribution)));
  const rows = shown.map((reason) => {
    const bar = h("span", { class: reason.contribution > 0 ? "bar" : "bar minus" });
    bar.style.setProperty("--share", (Math.abs(reason.contribution) / largest).toFixed(3));
    const sign = reason.contribution > 0 ? "+" : "−";
    return h(
      "li",
      {},
      h("span", { class: "word", dir: "auto" }, reason.text),
      bar,
      h("span", { class: "number" }, `${sign}${Math.abs(reason.contribution).toFixed(2)}`),
    );
  });
  return part("Words that counted most", h("ul", { class: "words signed" }, ...rows));
}

function pathPart(path, why) {
  if (!path.steps.length) return null;
  const several = why.paths.length > 1;
  const share = several ? ` (${Math.round(100 * path.weight)} % of the score)` : "";
  const heading =
    path.steps.length > 1 || several ? `Path to the label: ${path.name}${share}` : "Score";
  const steps = path.steps.map((step, number) => {
    const last = number === path.steps.length - 1;
    const what = last
      ? h("strong", {}, why.name)
      : h(
          "span",
          {},
          `Group of ${counted(step.labels, "label")}`,
          h("span", { class: "muted" }, ` such as ${step.examples.join(", ")}`),
        );
    const chance =
      step.probability === null ? `margin ${step.margin.toFixed(2)}` : step.probability.toFixed(2);
    return h("li", {}, what, h("span", { class: "number" }, chance));
  });
  const product = path.steps.filter((step) => step.counts && step.probability !== null).length > 1;
  const kind = why.score_kind;
  return part(
    heading,
    h("ol", { class: "path" }, ...steps),
    product
      ? h(
          "p",
          { class: "muted small" },
          `The numbers multiply to ${score(path.score, kind === "probability" ? "product" : kind)}.`,
        )
      : null,
    why.calibrated === null || several
      ? null
      : h(
          "p",
          { class: "muted small" },
          `Calibration turns it into ${score(why.calibrated, "probability")}.`,
        ),
  );
}

function neighboursPart(neighbours) {
  if (!neighbours.length) return null;
  const items = neighbours.map((near) =>
    h(
      "li",
      {},
      h("p", {}, near.excerpt),
      h(
        "p",
        { class: "muted small" },
        `${near.id ?? `document ${near.document + 1}`}, likeness ${near.similarity.toFixed(2)}`,
      ),
    ),
  );
  return part(
    "Most similar documents with this label",
    h("ul", { class: "neighbours" }, ...items),
  );
}

function memberPart(text, member) {
  const kind = member.score_kind;
  const number = member.score === null ? "" : `: ${score(member.score, kind)}`;
  return h(
    "details",
    { class: "member" },
    h("summary", {}, `${member.method}${number}`),
    ...whyPanel(text, member),
  );
}

const part = (heading, ...inside) =>
  h("section", { class: "reason" }, h("h4", {}, heading), ...inside.filter(Boolean));
