// Requests as commands for a shell, and copying to the clipboard.

import { hasToken } from "./api.js";
import { announce, h } from "./dom.js";

// Where the service is; a proxy may have put a path in front of it.
const base = () => new URL(".", location.href.replace(/[?#].*$/, "")).href;

// In single quotes nothing is special to a shell but the single quote.
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(path, body = undefined) {
  const lines = [`curl ${quoted(base() + path)}`];
  // The token itself does not belong into what people paste elsewhere.
  if (hasToken()) lines.push('-H "authorization: Bearer $LABELGROVE_TOKEN"');
  if (body !== undefined)
    lines.push("-H 'content-type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https, browsers have no clipboard for scripts, only for what is selected.
    const field = h("textarea", { class: "hidden", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) throw new Error("the browser does not let this page copy");
  }
}

// A button that copies what `text()` gives, and says so.
export function copyButton(name, text, kind = "secondary") {
  const button = h("button", { type: "button", class: kind }, name);
  button.addEventListener("click", async () => {
    try {
      await copy(text());
      button.textContent = "Copied";
      announce("Copied.");
    } catch (error) {
      button.textContent = "Not copied";
      announce(`Not copied: ${error.message}.`);
    }
    button.focus();
    setTimeout(() => (button.textContent = name), 1500);
  });
  return button;
}
