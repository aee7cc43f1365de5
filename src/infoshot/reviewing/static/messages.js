// Short messages: toasts that everyone sees, and a line that screen readers read aloud.

import { button, el, iconButton } from "./dom.js";

const SECONDS = 6;

export class Messages {
  constructor(toasts, live) {
    this.toasts = toasts;
    this.live = live;
  }

  // For screen readers; what sighted people see anyway.
  say(text) {
    this.live.textContent = "";
    requestAnimationFrame(() => (this.live.textContent = text));
  }

  inform(text, action = null) {
    return this.#show(text, "status", action, SECONDS);
  }

  // Something failed. It stays until it is closed or has been there for long.
  warn(text, action = null) {
    return this.#show(text, "alert", action, 3 * SECONDS);
  }

  #show(text, role, action, seconds) {
    for (const other of this.toasts.children) if (other.dataset.text === text) other.remove();
    const toast = el("div", { class: `toast toast-${role}`, role, "data-text": text });
    const close = () => toast.remove();
    toast.append(el("span", { text }));
    if (action) {
      toast.append(button(action.label, { kind: "plain", onclick: () => (close(), action.run()) }));
    }
    toast.append(iconButton("Close this message", "close", close));
    this.toasts.append(toast);
    while (this.toasts.children.length > 4) this.toasts.firstChild.remove();
    let timer = setTimeout(close, 1000 * seconds);
    toast.addEventListener("pointerenter", () => clearTimeout(timer));
    toast.addEventListener("pointerleave", () => (timer = setTimeout(close, 1000 * seconds)));
    return close;
  }
}
