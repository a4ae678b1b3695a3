// The sign-in page: a key is exchanged for a cookie that scripts cannot read.

import { form } from "./components/index.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { signIn } from "./session.js";
import { brand, switches } from "./shell.js";

/** Create the page. A valid key changes the session, and the console draws the page of the address. */
export function signInPage() {
  document.title = `${t("common.signIn")} · Haulage`;
  const entry = form({
    fields: [
      {
        name: "key",
        label: t("common.apiKey"),
        kind: "password",
        required: true,
        hint: t("common.apiKeyHint"),
        autocomplete: "current-password",
      },
    ],
    action: t("common.signIn"),
    submit: ({ key }) => signIn(key.trim()),
  });
  return h(
    "main",
    { class: "sign-in", id: "content" },
    h("div", { class: "sign-in-card" }, brand(), h("h1", {}, t("common.signIn")), h("p", { class: "quiet" }, t("common.signInText")), entry),
    h("div", { class: "sign-in-foot" }, switches()),
  );
}
