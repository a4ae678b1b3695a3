// The entry point: loads the session, draws the frame, then the page of the address.

import { get } from "./api.js";
import { problemBox } from "./components/index.js";
import { clear, h } from "./dom.js";
import * as router from "./router.js";
import { load, session } from "./session.js";
import { frame } from "./shell.js";
import { signInPage } from "./signin.js";
import "./words/common.js";

const UNAVAILABLE = 503;
const START_AGAIN_MS = 5000;

/** Draw the sign-in page, or the frame with the page of the address. */
export async function draw() {
  router.leave();
  if (!session.signedIn) {
    clear(document.body, signInPage());
    return;
  }
  const main = h("main", { id: "content", tabindex: "-1" });
  clear(document.body, frame(main, draw));
  await router.start(main);
}

/** Focus the heading after signing in, and the key's field after signing out. */
function focusStart() {
  document.querySelector(session.signedIn ? "#content h1" : "#content input")?.focus();
}

/** The problem that names each component that does not serve; the given one if all serve again. */
function whatIsDown(problem) {
  return get("/readyz").then(() => problem, (known) => (known.status === UNAVAILABLE ? known : problem));
}

async function start() {
  router.prepare();
  try {
    await load();
  } catch (problem) {
    clear(document.body, h("main", { class: "alone" }, problemBox(problem.status === UNAVAILABLE ? await whatIsDown(problem) : problem)));
    if (problem.status === UNAVAILABLE) setTimeout(start, START_AGAIN_MS);
    return;
  }
  let signedIn = session.signedIn;
  session.onChange(() => {
    // Another project is drawn in the same frame; signing in or out draws everything.
    if (signedIn === session.signedIn && signedIn) router.refresh();
    else draw().then(focusStart);
    signedIn = session.signedIn;
  });
  await draw();
}

start();
