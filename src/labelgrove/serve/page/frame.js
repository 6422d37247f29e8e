// What is around the views: the theme, the token, the link past the head.

import { hasToken, onTokenNeeded, setToken } from "./api.js";
import { byId, h } from "./dom.js";

export function startFrame() {
  // By script, because the address holds the view.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  startTheme();
  startToken();
}

function startTheme() {
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () =>
    (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const paint = () => {
    button.replaceChildren(dark() ? "Light" : "Dark", h("span", { class: "hidden" }, " colours"));
  };
  button.addEventListener("click", () => {
    const chosen = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("labelgrove-theme", chosen);
    } catch {
      // Without storage it lasts until the page is closed.
    }
    paint();
  });
  system.addEventListener("change", paint);
  paint();
}

function startToken() {
  const dialog = byId("token-dialog");
  let asking = null;
  onTokenNeeded((wrong) => {
    asking ??= new Promise((resolve) => {
      byId("token").value = "";
      byId("token-wrong").hidden = !wrong;
      dialog.returnValue = "";
      dialog.showModal();
      dialog.addEventListener(
        "close",
        () => {
          asking = null;
          const typed = byId("token").value.trim();
          byId("token").value = "";
          resolve(dialog.returnValue === "given" && typed ? typed : null);
          byId("forget-token").hidden = !hasToken();
        },
        { once: true },
      );
    });
    return asking;
  });
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("given");
  });
  byId("token-cancel").addEventListener("click", () => dialog.close(""));
  byId("forget-token").addEventListener("click", () => {
    setToken(null);
    location.reload();
  });
}
