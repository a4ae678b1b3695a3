// The console begins here: the session first, then the frame, then the page that the address names.

import { problemBox } from "./components/index.js";
import { clear, h } from "./dom.js";
import * as router from "./router.js";
import { load, session } from "./session.js";
import { frame } from "./shell.js";
import { signInPage } from "./signin.js";
import "./words/common.js";

/** Draw what fits: the sign-in page, or the frame around the page that the address names. */
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

/** Whoever just came begins at the heading, and whoever just left at the key. */
function begins() {
  document.querySelector(session.signedIn ? "#content h1" : "#content input")?.focus();
}

async function begin() {
  router.prepare();
  try {
    await load();
  } catch (problem) {
    clear(document.body, h("main", { class: "alone" }, problemBox(problem)));
    return;
  }
  let signedIn = session.signedIn;
  session.onChange(() => {
    // Another project shows in the same frame; only somebody who comes or goes changes the whole.
    if (signedIn === session.signedIn && signedIn) router.refresh();
    else draw().then(begins);
    signedIn = session.signedIn;
  });
  await draw();
}

begin();
