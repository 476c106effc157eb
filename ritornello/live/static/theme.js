// Runs before the first paint, so that a dark page never flashes white.
"use strict";
(() => {
  let chosen = "";
  try { chosen = localStorage.getItem("theme") || ""; } catch { /* storage is switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
