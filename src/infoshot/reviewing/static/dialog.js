// Modal dialogs on the browser's own <dialog>: focus stays inside, Escape closes.

import { button, el, iconButton } from "./dom.js";

let count = 0;

// Opens a dialog; resolves with the value it was closed with, null when it was cancelled.
export function openDialog({ title, content, actions = [], kind = "" }) {
  count += 1;
  const id = `dialog-${count}`;
  const dialog = el("dialog", { class: `dialog ${kind}`, "aria-labelledby": id });
  const close = (value = null) => {
    dialog.value = value;
    dialog.close();
  };
  const form = el("form", { method: "dialog", class: "dialog-body" }, ...[content].flat());
  const footer = el("footer", { class: "dialog-actions" }, ...actions.map((each) => actionButton(each, close)));
  dialog.append(
    el(
      "header",
      { class: "dialog-head" },
      el("h2", { id, text: title, tabindex: "-1" }),
      iconButton("Close", "close", () => close()),
    ),
    form,
  );
  if (actions.length) form.append(footer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    footer.querySelector("button.primary:not(:disabled)")?.click();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && close());
  document.body.append(dialog);
  dialog.showModal();
  (footer.querySelector("button.primary") ?? dialog.querySelector("h2")).focus();
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.value ?? null);
    });
  });
  return { dialog, close, closed };
}

function actionButton({ label, value, primary = false, danger = false, run }, close) {
  const kind = primary ? (danger ? "primary danger" : "primary") : "";
  return button(label, { kind, onclick: () => (run ? run(close) : close(value ?? null)) });
}

// A question with two answers.
export function ask({ title, text, confirm, cancel = "Cancel", danger = false }) {
  const { closed } = openDialog({
    title,
    content: [text].flat().map((line) => el("p", { text: line })),
    actions: [
      { label: cancel, value: false },
      { label: confirm, value: true, primary: true, danger },
    ],
  });
  return closed.then(Boolean);
}
