// Small helpers: elements, announcements, numbers.

export const byId = (id) => document.getElementById(id);

// h("p", {class: "small"}, "text", element): text is always text, never markup.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// For screen readers; the same words twice are two messages.
export function announce(sentence) {
  const live = byId("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = sentence), 30);
}

// An error beside what caused it. `again` puts a button there.
export function showProblem(place, error, again = null) {
  const sentence = error.sentence ?? `Something went wrong in this page: ${error.message}`;
  const button =
    again && h("button", { type: "button", class: "secondary", onclick: again }, "Try again");
  place.replaceChildren(h("p", {}, sentence), ...(button ? [button] : []));
  place.hidden = false;
  if (button && error.retryAfter) countDown(button, error.retryAfter);
}

export function hideProblem(place) {
  place.hidden = true;
  place.replaceChildren();
}

function countDown(button, seconds) {
  button.disabled = seconds > 0;
  button.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
  if (seconds > 0 && button.isConnected) setTimeout(() => countDown(button, seconds - 1), 1000);
}

// Scrolls to results that are out of sight.
export function reveal(element) {
  const { top } = element.getBoundingClientRect();
  if (top >= 0 && top < 0.6 * innerHeight) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  element.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
}

export function debounce(action, milliseconds) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), milliseconds);
  };
}

const whole = new Intl.NumberFormat("en-GB");
export const count = (number) => whole.format(number);
export const counted = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

export function seconds(number) {
  if (number < 1) return `${Math.round(1000 * number)} ms`;
  if (number < 120) return `${number.toFixed(1)} s`;
  const minutes = number / 60;
  return minutes < 120 ? `${minutes.toFixed(1)} min` : `${(minutes / 60).toFixed(1)} h`;
}

// A score by its kind: only calibrated scores are shown in percent.
export function score(value, kind) {
  if (kind === "probability") {
    const percent = Math.round(100 * value);
    return percent === 0 && value > 0 ? "<1 %" : `${percent} %`;
  }
  if (kind === "product" && value > 0 && value < 0.005) return "<0.01";
  return value.toFixed(2);
}

// Whether a score is at the line or above it: what people see is what counts.
export const reaches = (value, least, kind) =>
  kind === "probability" ? Math.round(100 * value) >= Math.round(100 * least) : value >= least;

// The smallest score that is shown as this one, for requests to the service.
export const lowest = (least, kind) =>
  kind === "probability" && least > 0 ? (Math.round(100 * least) - 0.499) / 100 : least;

export const MEANING = {
  probability:
    "Calibrated: of the labels given 80\u00a0%, about 80\u00a0% were right on documents the model had not seen.",
  product:
    "Scores from 0 to 1 that rank labels. They are not calibrated: 0.8 does not mean right in 80\u00a0% of cases.",
  margin: "Margins: higher is better, only their order counts. They are not probabilities.",
};
