// Sets theme and language before the first paint, so that the page does not flash.
(() => {
  const root = document.documentElement;
  try {
    const theme = localStorage.getItem("haulage.theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    root.lang = localStorage.getItem("haulage.language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
  } catch {
    // Without storage the browser's preferences apply.
  }
})();
