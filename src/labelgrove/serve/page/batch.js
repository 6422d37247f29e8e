// Many texts: sent in portions, shown as a table, saved as CSV or JSON.

import { about, post } from "./api.js";
import {
  announce,
  byId,
  count,
  counted,
  h,
  hideProblem,
  MEANING,
  reaches,
  reveal,
  score,
  showProblem,
} from "./dom.js";
import { downloadButtons } from "./files.js";
import { keptLabels } from "./kept.js";

const PORTION = 32;
const ROWS = 100;
const SHOWN_LABELS = 5;
const WAITS = 20; // how often a busy service is asked again

export function createBatch(app, body, { problem, look }) {
  let current = null;

  // Labels with less than `line` are shown, but pale.
  function run(texts, wanted, line) {
    stop();
    current = {
      texts,
      wanted,
      line,
      answers: new Array(texts.length),
      kind: app.model().score_kind,
      shown: 0,
    };
    byId("try-columns").classList.add("wide");
    paint(current);
    return goOn(current);
  }

  const stop = () => current?.control.abort();

  // Asks for the texts that have no answer yet.
  async function goOn(state) {
    state.control = new AbortController();
    state.head.replaceChildren(state.progress);
    hideProblem(problem);
    try {
      for (const portion of portions(state, app.model().limits)) {
        const rows = await patiently(
          portion.map((number) => state.texts[number].document),
          state,
        );
        portion.forEach((number, place) => (state.answers[number] = rows[place]));
        update(state);
      }
      finished(state);
    } catch (error) {
      if (error.name !== "AbortError") showProblem(problem, error);
      finished(state);
    }
  }

  // A busy service says when to try again; a table of many texts can wait for that.
  async function patiently(texts, state) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const answer = await post(about("predict"), { texts, ...state.wanted }, state.control.signal);
        state.kind = answer.score_kind;
        for (const number of answer.unknown) answer.predictions[number].unknown = true;
        return answer.predictions;
      } catch (error) {
        if (error.status !== 429 || attempt === WAITS) throw error;
        state.note.textContent = `${error.sentence} Continuing automatically.`;
        await pause(1000 * (error.retryAfter ?? 1), state.control.signal);
        state.note.textContent = "";
      }
    }
  }

  function paint(state) {
    state.bar = h("progress", {
      max: state.texts.length,
      value: 0,
      "aria-label": "Texts answered",
    });
    state.note = h("p", { class: "muted small", role: "status" });
    state.progress = h(
      "div",
      { class: "progress" },
      state.bar,
      h("button", { type: "button", class: "secondary", onclick: stop }, "Stop"),
    );
    state.head = h("div", { class: "batch-head" });
    state.rows = h("tbody");
    state.more = h(
      "button",
      { type: "button", class: "secondary", hidden: true, onclick: () => grow(state) },
      "Show more",
    );
    state.table = h(
      "table",
      { class: "batch" },
      h("caption", { class: "hidden" }, "The best labels of each text"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ...["", "Text", "Labels"].map((name) =>
            h("th", { scope: "col" }, name || h("span", { class: "hidden" }, "Number")),
          ),
        ),
      ),
      state.rows,
    );
    state.elements = [state.head, state.note, state.table, h("p", {}, state.more)];
    body.replaceChildren(...state.elements);
    grow(state);
    reveal(byId("results"));
  }

  function grow(state) {
    const until = Math.min(state.texts.length, state.shown + ROWS);
    for (; state.shown < until; state.shown += 1) {
      const given = state.texts[state.shown];
      const { text, id } = given;
      state.rows.append(
        h(
          "tr",
          {},
          h("th", { scope: "row" }, count(state.shown + 1)),
          h(
            "td",
            {},
            h(
              "button",
              {
                type: "button",
                class: "link excerpt",
                dir: "auto",
                title: "Show this text alone",
                onclick: () => open(state, given),
              },
              text.trim() ? text.slice(0, 240) : "(empty)",
            ),
            id === null ? null : h("span", { class: "muted small id" }, id),
          ),
          h("td", { class: "found" }),
        ),
      );
    }
    state.more.hidden = state.shown >= state.texts.length;
    state.more.textContent = `Show more (${count(state.texts.length - state.shown)} left)`;
    update(state);
  }

  function update(state) {
    state.bar.value = state.answers.filter(Boolean).length;
    [...state.rows.children].forEach((row, number) => {
      const cell = row.lastElementChild;
      const own = keptLabels(state.texts[number]);
      const labels = own ?? state.answers[number];
      if (!labels || cell.dataset.filled === String(Boolean(own))) return;
      cell.dataset.filled = Boolean(own);
      const chips = labels
        .slice(0, SHOWN_LABELS)
        .map((label) =>
          h(
            "li",
            { class: own || !isBelow(label, state) ? "chip" : "chip below" },
            label.name,
            " ",
            own ? null : h("span", { class: "muted" }, score(label.score, state.kind)),
          ),
        );
      if (labels.length > SHOWN_LABELS)
        chips.push(h("li", { class: "muted small" }, `and ${labels.length - SHOWN_LABELS} more`));
      const remark = (sentence) => h("span", { class: "muted" }, sentence);
      cell.replaceChildren(
        ...(own ? [remark("✓ your labels")] : []),
        ...(labels.unknown ? [remark("as of an empty text: no word tells the model anything")] : []),
        labels.refused
          ? remark(labels.refused)
          : labels.length
            ? h("ul", { class: "chips" }, ...chips)
            : remark("no label"),
      );
    });
  }

  function finished(state) {
    update(state);
    const done = state.answers.filter((labels) => labels && !labels.refused).length;
    const left = state.texts.length - state.answers.filter(Boolean).length;
    const sentence = `${count(done)} of ${counted(state.texts.length, "text")} answered.`;
    const button = (name, onclick) =>
      h("button", { type: "button", class: "secondary", onclick }, name);
    state.head.replaceChildren(
      h("p", {}, sentence),
      ...(left ? [button("Go on", () => goOn(state))] : []),
      ...(done
        ? downloadButtons("Suggestions", "labels", "secondary", () => [state.texts, state.answers])
        : []),
    );
    state.note.textContent =
      MEANING[state.kind] +
      (state.line === null ? "" : ` Labels below ${score(state.line, state.kind)} are pale.`) +
      " Click a text to choose its labels.";
    announce(sentence);
  }

  // One text alone, with a way back to the table and one to the next text without chosen labels.
  function open(state, given) {
    const place = state.texts.indexOf(given);
    const show = () => {
      byId("try-columns").classList.add("wide");
      body.replaceChildren(...state.elements);
      update(state);
      state.rows.children[place]?.querySelector("button").focus();
    };
    const back = () =>
      h(
        "p",
        {},
        h("button", { type: "button", class: "link", onclick: show }, "← Back to all texts"),
      );
    const next = () => {
      const after = [...state.texts.slice(place + 1), ...state.texts.slice(0, place)];
      const unfinished = after.find((one) => !keptLabels(one));
      return unfinished ? open(state, unfinished) : show();
    };
    return look(given, state.wanted, { back, next });
  }

  const isBelow = (label, { line, kind }) => line !== null && !reaches(label.score, line, kind);

  return { run, stop };
}

// Groups of texts for one request each; texts beyond the service's limits are not sent.
function* portions({ texts, answers }, limits) {
  const bytes = (text) => 2 * new TextEncoder().encode(text).length;
  let portion = [];
  let size = 0;
  for (let number = 0; number < texts.length; number += 1) {
    if (answers[number]) continue;
    const { document, text } = texts[number];
    const own = bytes(typeof document === "string" ? document : JSON.stringify(document));
    if (text.length > limits.max_text_chars || own > limits.max_body) {
      answers[number] = Object.assign([], { refused: "longer than the service takes; not sent" });
      continue;
    }
    if (
      portion.length &&
      (portion.length >= Math.min(PORTION, limits.max_texts) || size + own > limits.max_body / 2)
    ) {
      yield portion;
      portion = [];
      size = 0;
    }
    portion.push(number);
    size += own;
  }
  if (portion.length) yield portion;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}
