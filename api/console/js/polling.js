// Polling, where the API has no stream; an older answer is never drawn over a newer one.

/**
 * Create a function that reads and shows something. Several reads may be in progress, e.g. one by a timer and one after
 * an action; only the answer of the latest is shown.
 *
 * @template T
 * @param {function(...*): (T|Promise<T>)} ask - reads it, with the arguments of the call
 * @param {function(T): *} show - shows the answer; false says that nothing more will change
 * @param {function(Error): void} [fail] - shows the error of the latest read; without it the call throws
 * @returns {function(...*): Promise<*>} what `show` returned; undefined if a later read has started.
 *   `read.take(answer)` shows a known answer, e.g. of an action, instead of the reads in progress
 */
export function latestOnly(ask, show, fail = null) {
  let turn = 0;
  const read = async (...given) => {
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
  read.take = (answer) => {
    turn += 1;
    return show(answer);
  };
  return read;
}

/**
 * Create a function that draws only if the answer has changed, so that focus and selection are kept.
 *
 * @template T
 * @param {function(T): *} draw
 * @returns {function(T): *} what `draw` returned last
 */
export function drawIfChanged(draw) {
  let drawn = null;
  let result;
  return (answer) => {
    const json = JSON.stringify(answer);
    if (json === drawn) return result;
    drawn = json;
    result = draw(answer);
    return result;
  };
}

/**
 * Call `read` regularly while the page is open and visible, each time after the previous call has ended.
 *
 * @param {Place} place
 * @param {function(): *} read - returning false ends the polling; a Problem that it throws does not
 * @param {number} everyMs
 */
export function poll(place, read, everyMs) {
  let timer = 0;
  let left = false;
  const turn = async () => {
    const goesOn = document.hidden || (await attempt(read)) !== false;
    if (goesOn && !left) timer = setTimeout(turn, everyMs);
  };
  place.onLeave(() => {
    left = true;
    clearTimeout(timer);
  });
  timer = setTimeout(turn, everyMs);
}

async function attempt(read) {
  try {
    return await read();
  } catch (problem) {
    if (problem.name !== "Problem") console.error(problem);
    return undefined;
  }
}
