// The theme that was chosen, before anything is drawn. It is no secret, so it may outlive the tab.
"use strict";

(() => {
  const KEY = "fastmcp-aggregator.theme";
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return "";
    }
  };
  const apply = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
  };

  apply(stored());
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = stored();
    select.addEventListener("change", () => {
      apply(select.value);
      try {
        localStorage.setItem(KEY, select.value);
      } catch {
        // Storage may be off; then the choice holds until the page is left.
      }
    });
  });
})();
