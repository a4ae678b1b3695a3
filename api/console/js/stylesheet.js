// A room's own stylesheet, loaded with the room, so that the first page does not carry it.

/**
 * Load `css/<room>.css`.
 *
 * @param {string} room
 * @returns {Promise<void>} when it applies, or could not be read: a page without its looks is better than none
 */
export function stylesheet(room) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL(`../css/${room}.css`, import.meta.url).href;
  return new Promise((resolve) => {
    link.addEventListener("load", () => resolve());
    link.addEventListener("error", () => resolve());
    document.head.append(link);
  });
}
