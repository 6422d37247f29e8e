// Documents with fields: input boxes for what the model reads, and documents made of table rows.

import { byId, h } from "./dom.js";

// The text area holds the last text, which is usually the longest; other texts are above it.
export function createFields(names) {
  if (names === null) return PLAIN;
  const last = names.texts.at(-1);
  const box = (name, help) =>
    h(
      "div",
      {},
      h("label", { for: `field-${name}` }, name),
      h("input", {
        id: `field-${name}`,
        "data-field": name,
        type: "text",
        autocomplete: "off",
        dir: "auto",
        placeholder: help,
      }),
    );
  byId("text-label").textContent = last;
  byId("texts-above").replaceChildren(...names.texts.slice(0, -1).map((name) => box(name, "")));
  byId("catalogue").replaceChildren(
    ...names.fields.map((name) => box(name, "several: separate with ;")),
  );
  byId("holds").hidden = true; // a document with fields is one document
  const typed = (name) => byId(`field-${name}`).value;
  const values = (cell) =>
    (Array.isArray(cell) ? cell : String(cell ?? "").split(";"))
      .map((value) => String(value).trim())
      .filter(Boolean);

  function made(value) {
    const made = {};
    for (const name of names.texts) made[name] = String(value(name) ?? "");
    for (const name of names.fields) {
      const given = values(value(name));
      if (given.length) made[name] = given;
    }
    return made;
  }

  return {
    lists: new Set(names.fields),
    typed: (text) => made((name) => (name === last ? text : typed(name))),
    reads: (column) => names.texts.includes(column) || names.fields.includes(column),
    isIn: (columns) => names.texts.some((name) => columns.includes(name)),
    ofRow: (columns, row) => made((name) => row[columns.indexOf(name)]),
    // The words that explanations count characters in.
    words: (document) =>
      typeof document === "string"
        ? document
        : names.texts
            .map((name) => document[name])
            .filter(Boolean)
            .join("\n"),
  };
}

const PLAIN = {
  lists: new Set(),
  typed: (text) => text,
  isIn: () => false,
  words: (document) => document,
};
