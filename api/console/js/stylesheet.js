// The stylesheet of a section, loaded with its pages, so that the first page does not load it.

/**
 * Load `css/<section>.css`.
 *
 * @param {string} section
 * @returns {Promise<void>} resolves when it applies, or could not be loaded
 */
export function stylesheet(section) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL(`../css/${section}.css`, import.meta.url).href;
  return new Promise((resolve) => {
    link.addEventListener("load", () => resolve());
    link.addEventListener("error", () => resolve());
    document.head.append(link);
  });
}
