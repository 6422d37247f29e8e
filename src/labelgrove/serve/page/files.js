// Files of texts, read in the browser, and texts with labels written as CSV or JSON.

import { h } from "./dom.js";
import { sheetRows } from "./xlsx.js";

const TEXT_NAMES = [
  "text",
  "texts",
  "content",
  "body",
  "abstract",
  "description",
  "title",
  "document",
];
const ID_NAMES = ["id", "identifier", "key", "number"];

// What several dropped files hold: {name, columns, rows, header?, text}. A column of null means
// that every row is a text itself.
export async function readFiles(files, lists) {
  if (files.length > 1 || /\.txt$/i.test(files[0].name)) {
    const wrong = files.find((file) => !/\.txt$/i.test(file.name));
    if (wrong) throw fault(`Several files at once must all be .txt files; ${wrong.name} is not.`);
    const texts = await Promise.all(files.map(decoded));
    const rows = texts.map((text, number) => [files[number].name, text]);
    const name = files.length === 1 ? files[0].name : `${files.length} files`;
    return { name, columns: ["file", "text"], rows, textColumn: 1, idColumn: 0 };
  }
  const [file] = files;
  if (/\.xlsx$/i.test(file.name)) {
    const rows = await sheetRows(file).catch(() => {
      throw fault(`${file.name}: this cannot be read as an Excel workbook; save it as .xlsx or .csv.`);
    });
    return table(file.name, rows);
  }
  const content = await decoded(file);
  if (/\.(jsonl|ndjson)$/i.test(file.name)) return jsonLines(file.name, content, lists);
  if (/\.tsv$/i.test(file.name)) return table(file.name, parseCsv(content, "\t"));
  if (/\.csv$/i.test(file.name))
    return table(file.name, parseCsv(content, likelyDelimiter(content)));
  throw fault(`${file.name}: this page reads .xlsx, .csv, .tsv, .jsonl and .txt files.`);
}

const fault = (sentence) => Object.assign(new Error(sentence), { sentence });

// UTF-8 or, by its mark, UTF-16; anything else is taken for Windows-1252.
async function decoded(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const wide = { "255,254": "utf-16le", "254,255": "utf-16be" }[bytes.slice(0, 2).join()];
  if (wide) return new TextDecoder(wide).decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

// Columns in ``lists`` may hold several values.
function jsonLines(name, content, lists) {
  const rows = [];
  const columns = new Map();
  content.split(/\r?\n/).forEach((line, number) => {
    if (!line.trim()) return;
    let value;
    try {
      value = JSON.parse(line);
    } catch {
      throw fault(
        `${name}, line ${number + 1}: this is not JSON. Each line must hold one object or string.`,
      );
    }
    if (typeof value === "string") value = { text: value };
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      throw fault(`${name}, line ${number + 1}: neither an object nor a string.`);
    }
    const row = [];
    for (const [key, field] of Object.entries(value)) {
      const several = lists.has(key) && Array.isArray(field);
      if (!several && typeof field !== "string" && typeof field !== "number") continue;
      if (!columns.has(key)) columns.set(key, columns.size);
      row[columns.get(key)] = several ? field : String(field);
    }
    rows.push(row);
  });
  return chosen(name, [...columns.keys()], rows);
}

function table(name, rows) {
  if (!rows.length) throw fault(`${name}: the file is empty.`);
  const first = rows[0].map((cell) => cell.trim());
  const known = first.some((cell) =>
    [...TEXT_NAMES, ...ID_NAMES, "labels"].includes(cell.toLowerCase()),
  );
  const distinct = new Set(first).size === first.length && first.every(Boolean);
  const short = first.every((cell) => cell.length <= 30 && !/\s\S+\s/.test(cell));
  if (rows.length > 1 && (known || (distinct && short && first.length > 1))) {
    return chosen(name, first, rows.slice(1));
  }
  return chosen(
    name,
    first.map((_, number) => `column ${number + 1}`),
    rows,
  );
}

function chosen(name, columns, rows) {
  if (!rows.length || !columns.length) throw fault(`${name}: the file has no texts.`);
  const named = (names) =>
    names
      .map((one) => columns.findIndex((column) => column.toLowerCase() === one))
      .find((at) => at >= 0);
  const length = (column) => rows.reduce((sum, row) => sum + (row[column]?.length ?? 0), 0);
  const longest = columns.map((_, column) => column).sort((a, b) => length(b) - length(a))[0];
  return {
    name,
    columns,
    rows,
    textColumn: named(TEXT_NAMES) ?? longest,
    idColumn: named(ID_NAMES) ?? null,
  };
}

function likelyDelimiter(content) {
  const line = content.slice(0, content.search(/\r?\n|$/));
  return [",", ";", "\t"].sort((a, b) => line.split(b).length - line.split(a).length)[0];
}

// Quoted cells may hold delimiters, line ends and doubled quotes.
export function parseCsv(content, delimiter = ",") {
  const rows = [];
  let row = [];
  let place = 0;
  const special = new RegExp(`[${delimiter}\r\n]`, "g");
  while (place < content.length) {
    let cell = "";
    if (content[place] === '"') {
      for (place += 1; ; place += 1) {
        const end = content.indexOf('"', place);
        cell += content.slice(place, end < 0 ? content.length : end);
        place = end < 0 ? content.length : end + 1;
        if (content[place] !== '"') break;
        cell += '"';
      }
    }
    special.lastIndex = place;
    const end = special.exec(content)?.index ?? content.length;
    cell += content.slice(place, end);
    row.push(cell);
    place = end + 1;
    if (content[end] === delimiter && place < content.length) continue;
    if (content[end] === delimiter) row.push("");
    if (content[end] === "\r" && content[place] === "\n") place += 1;
    if (row.length > 1 || row[0].trim()) rows.push(row);
    row = [];
  }
  return rows;
}

export const csvLines = (lines) => lines.map((line) => line.map(cell).join(",") + "\r\n").join("");

// One line per text. A quote before what looks like a formula keeps spreadsheets from running it.
export function writeCsv(texts, answers) {
  const most = Math.max(1, ...answers.map((labels) => labels?.length ?? 0));
  const named = texts.some((text) => text.id !== null);
  const fields = [...new Set(texts.flatMap(({ document }) => Object.keys(asObject(document))))];
  const head = ["number", ...(named ? ["id"] : []), ...fields];
  for (let place = 1; place <= most; place += 1)
    head.push(`label_${place}`, `id_${place}`, `score_${place}`);
  const lines = texts.map((text, number) => [
    number + 1,
    ...(named ? [text.id ?? ""] : []),
    ...fields.map((field) => [asObject(text.document)[field] ?? ""].flat().join("; ")),
    ...(answers[number] ?? []).flatMap((label) => [label.name, label.id, label.score ?? ""]),
  ]);
  return "\ufeff" + csvLines([head, ...lines]);
}

// One object per text, with what programs want to know of it; labels are null if it was not asked.
export function writeJson(texts, answers) {
  const objects = texts.map(({ id, document }, number) => {
    const labels = answers[number] ?? null;
    return {
      ...(id === null ? {} : { id }),
      [typeof document === "string" ? "text" : "fields"]: document,
      labels: labels?.refused ? null : labels,
      ...(labels?.unknown ? { unknown: true } : {}),
    };
  });
  return `[\n${objects.map((one) => JSON.stringify(one)).join(",\n")}\n]\n`;
}

const asObject = (document) => (typeof document === "string" ? { text: document } : document);

// Buttons that save what `content()` gives: texts, and the labels of each.
export const downloadButtons = (title, name, kind, content) =>
  [
    ["csv", writeCsv, "text/csv"],
    ["json", writeJson, "application/json"],
  ].map(([ending, write, type]) => {
    const save = () => {
      const address = URL.createObjectURL(new Blob([write(...content())], { type }));
      h("a", { href: address, download: `${name}.${ending}` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    };
    return h("button", { type: "button", class: kind, onclick: save }, `${title} as ${ending.toUpperCase()}`);
  });

function cell(value) {
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
