// Looking again and again, where the API has no stream to listen to, so that nothing older is drawn over newer.

/**
 * A look at something that changes. Several may be on their way at a time, e.g. one by the clock and one after a deed:
 * what was asked for before may be answered later, and only the newest counts.
 *
 * @template T
 * @param {function(...*): (T|Promise<T>)} ask - gets what the look is given
 * @param {function(T): *} show - draws the newest answer; false says that there is nothing more to come
 * @param {function(Error): void} [fail] - tells what was wrong with the newest; without it the look throws
 * @returns {function(...*): Promise<*>} what `show` returned; undefined where something newer was asked for meanwhile.
 *   `look.take(answer)` shows what is known already, e.g. by a deed, and nothing of what is still on its way
 */
export function newest(ask, show, fail = null) {
  let turn = 0;
  const look = async (...given) => {
    turn += 1;
    const mine = turn;
    try {
      const answer = await ask(...given);
      return mine === turn ? await show(answer) : undefined;
    } catch (problem) {
      if (mine !== turn) return undefined;
      if (!fail) throw problem;
      if (problem.name !== "Problem") console.error(problem);
      return fail(problem);
    }
  };
  look.take = (answer) => {
    turn += 1;
    return show(answer);
  };
  return look;
}

/**
 * Draws only what differs from what was drawn before, so that focus and selection stay where they are.
 *
 * @template T
 * @param {function(T): *} draw
 * @returns {function(T): *} what `draw` returned when it last drew
 */
export function ifChanged(draw) {
  let drawn = null;
  let told;
  return (answer) => {
    const json = JSON.stringify(answer);
    if (json === drawn) return told;
    drawn = json;
    told = draw(answer);
    return told;
  };
}

/**
 * Call `look` every so often while the page is open, and somebody sees it; the next look begins when one has ended.
 *
 * @param {Place} place
 * @param {function(): *} look - false, at once or promised, ends it. A Problem that it throws does not: what is shown
 *   stays, and the next look may do better
 * @param {number} everyMs
 */
export function keepLooking(place, look, everyMs) {
  let timer = 0;
  let left = false;
  const turn = async () => {
    const goesOn = document.hidden || (await tried(look)) !== false;
    if (goesOn && !left) timer = setTimeout(turn, everyMs);
  };
  place.onLeave(() => {
    left = true;
    clearTimeout(timer);
  });
  timer = setTimeout(turn, everyMs);
}

async function tried(look) {
  try {
    return await look();
  } catch (problem) {
    if (problem.name !== "Problem") console.error(problem);
    return undefined;
  }
}
