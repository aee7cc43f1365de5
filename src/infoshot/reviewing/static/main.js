// Puts the page together.

import { ActionBar } from "./action_bar.js";
import { ClassKeys } from "./class_keys.js";
import { ClassPage } from "./class_page.js";
import { Commands } from "./commands.js";
import { EnoughPanel } from "./enough.js";
import { photos } from "./format.js";
import { Grid } from "./grid.js";
import { Keyboard } from "./keyboard.js";
import { Live } from "./live.js";
import { Messages } from "./messages.js";
import { Outbox } from "./outbox.js";
import { Panes } from "./panes.js";
import { Peek } from "./peek.js";
import { pickClass } from "./picker.js";
import { Preview } from "./preview.js";
import { Sidebar } from "./sidebar.js";
import { Status } from "./status.js";
import { Store } from "./store.js";
import { applyTheme, followSystemTheme, toggleTheme } from "./theme.js";
import { Toolbar } from "./toolbar.js";
import { View } from "./view.js";

const TOOLS = ".top button, .banner button, #toolbar button, #class-page button, #actions button, .side .icon-button";

const find = (id) => document.getElementById(id);

function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");
}

// Two columns on a phone, larger pictures in a very wide window.
function chosenSize() {
  const usual = Math.max(Math.min(160, Math.floor((innerWidth - 40) / 2)), Math.round(innerWidth / 18));
  return Number(localStorage.getItem("infoshot-size")) || usual;
}

class App {
  constructor() {
    this.client = randomName();
    this.store = new Store();
    this.outbox = new Outbox(this.store, this.client);
    this.live = new Live(this.store, this.client);
    this.messages = new Messages(find("toasts"), find("live"));
    this.view = new View();
    this.view.fromHash(location.hash);
    this.grid = new Grid(find("grid"), this.store);
    this.grid.size = chosenSize();
    this.commands = new Commands(this);
  }

  async start() {
    await this.store.loadState();
    this.firstEntry = this.store.state.entry; // what is older was done before this page was opened
    this.keys = new ClassKeys(this.store.state.run);
    this.keys.setClasses(this.store.classNames);
    this.sidebar = new Sidebar(this, find("side"));
    this.toolbar = new Toolbar(this, find("toolbar"));
    this.classPage = new ClassPage(this, find("class-page"));
    this.actionBar = new ActionBar(this, find("actions"));
    this.enough = new EnoughPanel(this, find("enough"));
    this.peek = new Peek(this);
    this.preview = new Preview(this);
    this.keyboard = new Keyboard(this);
    this.panes = new Panes(this);
    this.status = new Status(this, { solver: find("solver"), save: find("save"), banner: find("banner") });
    this.#listen();
    find("run-name").textContent = this.store.state.run;
    document.title = `${this.store.state.run} · infoshot review`;
    this.store.emit("state");
    this.live.connect();
    const n = this.outbox.restore(`infoshot-unsaved:${this.store.state.run}:${this.store.state.n_photos}`);
    if (n) this.messages.inform("Answers from before the reload are being sent.");
    if (this.view.name === "class" && !this.view.query.class) this.view.query.class = this.store.classNames[0];
    await this.view.change({});
    document.body.dataset.ready = "true";
    this.grid.focusCell();
  }

  #listen() {
    this.#listenToServer();
    this.#listenToView();
    this.outbox.addEventListener("saved", (event) => this.#saved(event.detail));
    this.outbox.addEventListener("caught-up", () => this.messages.inform("All answers are saved."));
    this.outbox.addEventListener("taken-back", () => this.messages.inform("Undone before it was sent."));
    this.outbox.addEventListener("refused", ({ detail }) => this.messages.warn(detail.error.message));
    this.outbox.addEventListener("conflict", () => this.openConflicts());
    this.store.addEventListener("failed", ({ detail }) => detail.status && this.messages.warn(detail.message));
    this.store.addEventListener("state", () => this.keys.setClasses(this.store.classNames));
    this.grid.addEventListener("open-item", () => this.preview.open());
    find("undo").addEventListener("click", () => this.commands.undo());
    find("history").addEventListener("click", () => this.openHistory());
    find("keys").addEventListener("click", () => this.openKeys());
    find("theme").addEventListener("click", () => this.#changeTheme());
    followSystemTheme(() => this.store.emit("theme"));
    document.addEventListener("click", (event) => this.#leaveButton(event));
    addEventListener("online", () => this.outbox.retry());
  }

  #listenToView() {
    this.view.addEventListener("open", () => {
      history.replaceState(null, "", `${location.pathname}${this.view.toHash()}`);
      this.classPage.restart();
      this.panes.show(this.view.name);
    });
    this.view.addEventListener("ids", () => {
      this.grid.setIds(this.view.name === "class" ? this.classPage.ids : this.view.ids);
      this.classPage.draw();
      this.panes.drawEmpty();
      this.toolbar.draw();
    });
    this.view.addEventListener("reordered", () => {
      this.grid.setIds(this.view.ids, { keepFocus: true, keepScroll: true });
    });
    this.view.addEventListener("failed", ({ detail }) => this.messages.warn(detail.message));
  }

  #listenToServer() {
    const { live, store } = this;
    live.addEventListener("entry", ({ detail }) => this.#receive(detail));
    live.addEventListener("solve", ({ detail }) => this.#solved(detail));
    live.addEventListener("enough", ({ detail }) => store.update({ enough: detail }));
    live.addEventListener("finished", ({ detail }) => store.update({ finished: detail }));
    live.addEventListener("map", ({ detail }) => store.update({ projection: detail.projection }));
    live.addEventListener("connected", ({ detail }) => {
      if (!detail.again) return;
      if (detail.restarted) this.messages.inform("Reconnected to the server.");
      store.expire();
      store.loadStateSoon();
      this.outbox.retry();
    });
  }

  // An action in the log: of this page or of another one.
  #receive(entry) {
    this.store.seen = Math.max(this.store.seen, entry.n);
    this.store.loadStateSoon();
    if (entry.client === this.client) return;
    this.store.refresh(entry.ids);
    this.messages.say(`Another window: ${entry.text}.`);
  }

  #solved(solve) {
    const isNew = solve.version !== this.store.state.solve.version;
    this.store.update({ solve });
    if (solve.state === "failed") this.messages.warn(solve.error ?? "The photos could not be solved again.");
    if (!isNew) return;
    this.store.expire();
    this.store.loadStateSoon();
    this.view.reorderAfter(this.grid.lastVisibleIndex);
  }

  #saved({ job, result }) {
    this.store.loadStateSoon();
    if (job.kind !== "undo") return;
    this.messages.inform(job.to === null ? this.#describeUndo(result.ids ?? []) : "Back to the chosen point.");
    const index = result.ids?.length ? this.grid.selection.ids.indexOf(result.ids[0]) : -1;
    if (index >= 0 && !this.audit?.isOpen && this.isGridShown()) this.grid.moveTo(index);
  }

  #describeUndo(ids) {
    if (!ids.length) return "Undone.";
    const name = ids.length === 1 ? this.store.get(ids[0])?.name : null;
    return `Undone: the last action on ${name ?? photos(ids.length)}.`;
  }

  // After a click with a pointer the keys are for the photos again, not for the button.
  #leaveButton(event) {
    const isTool = event.target.closest?.(TOOLS)?.hasAttribute("aria-controls") === false;
    if (!isTool || !event.detail || this.audit?.isOpen) return;
    if (!document.querySelector("dialog[open], [data-drawer]")) this.focusPhotos();
  }

  focusPhotos() {
    if (this.audit?.isOpen) this.audit.stage.focus();
    else if (this.isGridShown()) this.grid.focusCell();
    else this.panes.groups?.focus();
  }

  #changeTheme() {
    this.messages.say(toggleTheme() === "dark" ? "Dark." : "Light.");
    this.store.emit("theme");
  }

  isGridShown() {
    return this.view.name !== "groups" && !this.audit?.isOpen;
  }

  async openView(name, changes = {}) {
    if (name === "audit") return this.openAudit();
    const first = name === "class" && !changes.class ? { class: this.store.classNames[0] } : {};
    this.panes.closeDrawers();
    await this.view.open(name, { ...first, ...changes });
    if (this.isGridShown()) this.grid.focusCell();
    return null;
  }

  // Loads a part of the page; keys that are meant for it must not reach the photos meanwhile.
  async #load(path) {
    this.isLoading = true;
    try {
      return await import(path);
    } finally {
      this.isLoading = false;
    }
  }

  async openPicker() {
    if (this.grid.selection.isEmpty) return;
    const name = await pickClass(this, { item: this.store.get(this.grid.focusId) });
    if (name === this.store.state.none) await this.commands.reject();
    else if (name !== null) await this.commands.label(name);
    if (!this.preview.isOpen) this.grid.focusCell();
  }

  async openKeys() {
    (await this.#load("./key_dialog.js")).openKeyDialog(this);
  }

  async changeClass(action, name = "") {
    (await this.#load("./class_dialogs.js")).openClassDialog(this, action, name);
  }

  async openHistory() {
    (await this.#load("./history.js")).openHistory(this);
  }

  async openConflicts() {
    (await this.#load("./conflicts.js")).openConflicts(this);
  }

  async openFinish() {
    (await this.#load("./finish.js")).openFinish(this);
  }

  async openAudit() {
    this.panes.closeDrawers();
    const { Audit } = await this.#load("./audit.js");
    this.audit ??= new Audit(this, find("audit"));
    this.audit.open();
  }
}

applyTheme();
const app = new App();
app.start().catch((error) => {
  console.error(error);
  app.messages.warn(`${error.message} Reload the page when the server is there.`);
});
