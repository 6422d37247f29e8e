"use strict";
// Shows, searches and sorts the table of labels, page by page, from the data at the end of the
// page. Texts become text nodes, never HTML.
(() => {
  const PAGE = 50;
  const box = document.getElementById("label-table");
  const [table, note] = [box.querySelector("table"), box.querySelector(":scope > p")];
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const state = { sort: 1, down: true, from: 0 };

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const count = (value) => value.toLocaleString("en");
  const percent = (value) => Number.isNaN(value) ? "–" : (100 * value).toFixed(2);

  // Everything that is shown or sorted by, from counts; 0 / 0 is NaN, which sorts last.
  const prepare = (data) => {
    const ratio = (tops, bottoms) => tops.map((top, i) => top / bottoms(i));
    const f1 = (run) => ratio(run.hits.map((hits) => 2 * hits),
      (i) => run.predicted[i] + data.support[i]);
    const [subject, ...others] = data.runs;
    const precision = ratio(subject.hits, (i) => subject.predicted[i]);
    const recall = ratio(subject.hits, (i) => data.support[i]);
    const words = data.names.map((name) => name.toLowerCase());
    return {
      ...data,
      shares: [precision, recall, f1(subject), ...others.map(f1)],
      keys: [words, data.support, subject.predicted, precision, recall, f1(subject),
        ...others.map(f1)],
      sought: words.map((name, i) => data.ids ? `${name}\n${data.ids[i].toLowerCase()}` : name),
    };
  };

  const labels = prepare(JSON.parse(document.getElementById("label-data").textContent));

  const chosen = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [];
    for (let i = 0; i < labels.names.length; i++) {
      if (words.every((word) => labels.sought[i].includes(word))) rows.push(i);
    }
    const key = labels.keys[state.sort];
    const sign = state.down ? -1 : 1;
    const last = (value) => Number.isNaN(value) || value === undefined;
    return rows.sort((a, b) => {
      const [x, y] = [key[a], key[b]];
      if (last(x) || last(y)) return last(x) - last(y) || a - b;
      return x < y ? -sign : x > y ? sign : a - b;
    });
  };

  const shownRow = (i) => {
    const name = make("bdi", {}, labels.names[i]);
    if (labels.ids && labels.ids[i] !== labels.names[i]) name.title = labels.ids[i];
    const cells = [count(labels.support[i]), count(labels.runs[0].predicted[i]),
      ...labels.shares.map((share) => percent(share[i]))].map((text) => make("td", {}, text));
    return make("tr", {}, make("th", { scope: "row" }, name), ...cells);
  };

  const search = make("input", { type: "search", id: "label-search", autocomplete: "off" });
  const earlier = make("button", { type: "button" }, "Earlier");
  const later = make("button", { type: "button" }, "Later");
  note.setAttribute("role", "status");
  box.prepend(make("p", { className: "controls" },
    make("label", { htmlFor: "label-search" }, "Search labels "), search));
  box.append(make("p", { className: "controls" }, earlier, " ", later));

  const show = () => {
    const rows = chosen(search.value);
    state.from = Math.max(0, Math.min(state.from, Math.floor((rows.length - 1) / PAGE) * PAGE));
    const part = rows.slice(state.from, state.from + PAGE);
    body.replaceChildren(...part.map(shownRow));
    heads.forEach((head, column) => {
      if (column === state.sort) {
        head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      } else head.removeAttribute("aria-sort");
    });
    earlier.disabled = state.from === 0;
    later.disabled = state.from + PAGE >= rows.length;
    const all = count(labels.names.length);
    note.textContent = rows.length
      ? `${count(state.from + 1)} to ${count(state.from + part.length)} of ${count(rows.length)} ` +
        (rows.length < labels.names.length ? `labels that match, ${all} in all.` : "labels.")
      : `No label contains this; there are ${all}.`;
  };

  heads.forEach((head, column) => {
    const button = make("button", { type: "button" }, ...head.childNodes);
    button.addEventListener("click", () => {
      state.down = state.sort === column ? !state.down : column > 0;
      Object.assign(state, { sort: column, from: 0 });
      show();
    });
    head.replaceChildren(button);
  });
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { state.from = 0; show(); }, 120);
  });
  earlier.addEventListener("click", () => { state.from -= PAGE; show(); });
  later.addEventListener("click", () => { state.from += PAGE; show(); });
  show();
})();
