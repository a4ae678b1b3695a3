// Before the first paint: the theme and the language that this browser chose, so that nothing flashes.
(() => {
  const root = document.documentElement;
  try {
    const theme = localStorage.getItem("haulage.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    root.lang = localStorage.getItem("haulage.language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
  } catch {
    // A browser that keeps nothing gets what it prefers by itself.
  }
})();
