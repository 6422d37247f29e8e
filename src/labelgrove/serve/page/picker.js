// A field for choosing labels by name: a combobox with suggestions, and the chosen ones as chips.

import { about, get } from "./api.js";
import { announce, count, debounce, h } from "./dom.js";

let pickers = 0;

export function createPicker(place, { title, help, groups, changed }) {
  const id = `picker-${(pickers += 1)}`;
  const chosen = new Map(); // what the service is sent -> name
  let options = [];
  let active = -1;
  let asking = null;

  const input = h("input", {
    id,
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    "aria-expanded": "false",
    "aria-controls": `${id}-list`,
    "aria-autocomplete": "list",
    "aria-describedby": `${id}-help`,
    placeholder: "Search labels",
  });
  const list = h("ul", {
    id: `${id}-list`,
    role: "listbox",
    class: "suggestions",
    "aria-label": title,
    hidden: true,
  });
  const chips = h("ul", { class: "chips", "aria-label": `${title}: chosen` });
  place.replaceChildren(
    h("label", { for: id }, title),
    h("div", { class: "combobox" }, input, list),
    chips,
    h("p", { id: `${id}-help`, class: "muted small" }, help),
  );

  function close() {
    asking?.abort();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function open(found) {
    if (document.activeElement !== input) return; // the answer came too late
    options = found.filter((option) => !chosen.has(option.value));
    active = -1;
    input.removeAttribute("aria-activedescendant");
    list.replaceChildren(
      ...options.map((option, number) =>
        h(
          "li",
          {
            role: "option",
            id: `${id}-${number}`,
            "aria-selected": "false",
            onmousedown: (event) => {
              event.preventDefault(); // the field keeps the focus
              add(option.value, option.name);
            },
          },
          h("span", {}, option.name),
          h("span", { class: "muted small" }, option.note),
        ),
      ),
    );
    if (!options.length)
      list.replaceChildren(h("li", { class: "muted", role: "presentation" }, "No label matches."));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  }

  async function search() {
    asking?.abort();
    asking = new AbortController();
    const query = input.value.trim();
    try {
      const { labels } = await get(about("labels"), { q: query, limit: 8 }, asking.signal);
      const folded = query.toLowerCase();
      const named = groups()
        .filter((group) => group.toLowerCase().includes(folded))
        .slice(0, 4);
      open([
        ...named.map((group) => ({
          value: `group:${group}`,
          name: group,
          note: "a group of labels",
        })),
        ...labels.map((label) => ({
          value: label.id,
          name: label.name,
          note:
            label.training_documents === null
              ? label.id
              : `${count(label.training_documents)} documents`,
        })),
      ]);
    } catch (error) {
      if (error.name === "AbortError") return;
      list.replaceChildren(
        h("li", { class: "muted", role: "presentation" }, error.sentence ?? error.message),
      );
      list.hidden = false;
    }
  }

  function point(to) {
    list.children[active]?.setAttribute("aria-selected", "false");
    active = (to + options.length) % options.length;
    const item = list.children[active];
    item.setAttribute("aria-selected", "true");
    item.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", item.id);
  }

  function add(value, name) {
    chosen.set(value, name);
    input.value = "";
    close();
    paint();
    announce(`${name} added.`);
  }

  function remove(value, focus = true) {
    const name = chosen.get(value);
    chosen.delete(value);
    paint();
    if (focus) input.focus();
    announce(`${name} removed.`);
  }

  function paint() {
    chips.replaceChildren(
      ...[...chosen].map(([value, name]) =>
        h(
          "li",
          { class: "chip" },
          name,
          h(
            "button",
            { type: "button", "aria-label": `Remove ${name}`, onclick: () => remove(value) },
            "×",
          ),
        ),
      ),
    );
    changed();
  }

  const later = debounce(() => (input.value.trim() ? search() : close()), 120);
  input.addEventListener("input", later);
  input.addEventListener("focus", () => input.value.trim() && search());
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey) return; // Ctrl+Enter sends the form from everywhere
    const shown = !list.hidden;
    if (event.key === "ArrowDown" && !shown) search();
    else if (event.key === "ArrowDown" && options.length) point(active + 1);
    else if (event.key === "ArrowUp" && shown && options.length)
      point(active < 0 ? -1 : active - 1);
    else if (event.key === "Enter" && shown && options.length) {
      const option = options[Math.max(0, active)];
      add(option.value, option.name);
    } else if (event.key === "Enter") {
      // Enter chooses a label here and does not send the form.
    } else if (event.key === "Escape" && shown) close();
    else if (event.key === "Backspace" && !input.value && chosen.size)
      remove([...chosen.keys()].at(-1));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // Replaces all that is chosen, without a word.
  function fill(entries) {
    chosen.clear();
    for (const [value, name] of entries) chosen.set(value, name);
    paint();
  }

  return {
    add,
    fill,
    remove,
    has: (value) => chosen.has(value),
    entries: () => [...chosen],
    values: () => [...chosen.keys()],
    size: () => chosen.size,
  };
}
