// Looking again and again, where the API has no stream to listen to.

/**
 * Call `look` every so often while the page is open, and somebody sees it; the next look begins when one has ended.
 *
 * @param {Place} place
 * @param {function(): Promise<boolean|void>} look - false ends it
 * @param {number} everyMs
 */
export function keepLooking(place, look, everyMs) {
  let timer = 0;
  let left = false;
  const turn = async () => {
    const goesOn = document.hidden || (await look()) !== false;
    if (goesOn && !left) timer = setTimeout(turn, everyMs);
  };
  place.onLeave(() => {
    left = true;
    clearTimeout(timer);
  });
  timer = setTimeout(turn, everyMs);
}
