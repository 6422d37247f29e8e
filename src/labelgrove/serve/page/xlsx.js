// The first sheet of an Excel workbook as rows of strings. A workbook is a ZIP archive of XML.

const MOST_BYTES = 500e6; // unpacked: a browser's tab does not survive much more

export async function sheetRows(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const parts = zipEntries(new DataView(bytes.buffer));
  const xml = async (name) =>
    new DOMParser().parseFromString(await unpacked(bytes, parts.get(name)), "application/xml");
  const book = await xml("xl/workbook.xml");
  const id = book.querySelector("sheets > sheet").getAttribute("r:id");
  const links = await xml("xl/_rels/workbook.xml.rels");
  const target = links.querySelector(`[Id="${CSS.escape(id)}"]`).getAttribute("Target");
  const sheet = await xml(target.startsWith("/") ? target.slice(1) : `xl/${target}`);
  const shared = parts.has("xl/sharedStrings.xml")
    ? [...(await xml("xl/sharedStrings.xml")).querySelectorAll("si")].map(words)
    : [];
  return [...sheet.querySelectorAll("sheetData > row")]
    .map((row) => cells(row, shared))
    .filter((row) => row.some((cell) => cell.trim()));
}

// Empty cells may be missing, so each says its column: "AB7".
function cells(row, shared) {
  const values = [];
  for (const cell of row.querySelectorAll("c")) {
    const letters = /^[A-Z]{1,3}/.exec(cell.getAttribute("r") ?? "")?.[0];
    const column = letters
      ? [...letters].reduce((sum, letter) => 26 * sum + letter.charCodeAt(0) - 64, 0) - 1
      : values.length;
    const value = cell.querySelector("v")?.textContent ?? "";
    const kind = cell.getAttribute("t");
    values[column] = kind === "s" ? shared[value] : kind === "inlineStr" ? words(cell) : value;
  }
  return Array.from(values, (value) => value ?? "");
}

// Without the pronunciation that Japanese cells carry.
const words = (element) =>
  [...element.querySelectorAll("t")]
    .filter((one) => !one.closest("rPh"))
    .map((one) => one.textContent)
    .join("");

function zipEntries(view) {
  let end = view.byteLength - 22;
  while (view.getUint32(end, true) !== 0x06054b50) end -= 1;
  const entries = new Map();
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    const length = view.getUint16(at + 28, true);
    const name = new TextDecoder().decode(new Uint8Array(view.buffer, at + 46, length));
    const start = view.getUint32(at + 42, true);
    entries.set(name, {
      packed: view.getUint16(at + 10, true) !== 0,
      start: start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true),
      size: view.getUint32(at + 20, true),
      unpackedSize: view.getUint32(at + 24, true),
    });
    at += 46 + length + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
  }
  return entries;
}

async function unpacked(bytes, { packed, start, size, unpackedSize }) {
  if (unpackedSize > MOST_BYTES) throw new RangeError("too large");
  const stream = new Blob([bytes.subarray(start, start + size)]).stream();
  return new Response(packed ? stream.pipeThrough(new DecompressionStream("deflate-raw")) : stream).text();
}
