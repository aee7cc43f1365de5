// The keys. One list: the keyboard follows it and the dialog of keys shows it.

const TYPING = "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select";

export function commandKeys(app) {
  const { commands, grid } = app;
  return [
    { group: "Answer", keys: ["Enter"], text: "Accept the prediction; with several selected: of all", run: () => commands.accept() },
    { group: "Answer", keys: ["X"], text: "None of the classes", run: () => commands.reject() },
    { group: "Answer", keys: ["S"], text: "Skip: decide later", run: () => commands.skip() },
    { group: "Answer", keys: ["Delete", "Backspace"], text: "Take the answer away", run: () => commands.clear() },
    { group: "Answer", keys: ["/"], text: "Choose a class by typing its name", run: () => app.openPicker() },
    { group: "Answer", keys: ["U", "Ctrl+Z"], text: "Undo the last action", run: () => commands.undo() },
    { group: "Look", keys: ["Space"], text: "Large preview; Escape closes it", run: () => app.preview.toggle() },
    { group: "Look", keys: ["N"], text: "Next photo without an answer", run: () => commands.next() },
    { group: "Look", keys: ["P"], text: "Pin: sort by similarity to this photo; again: end it", run: () => commands.pin() },
    { group: "Look", keys: ["R"], text: "Refresh the order of the view", run: () => app.view.load() },
    { group: "Select", keys: ["Ctrl+A"], text: "Select all photos shown", run: () => grid.selectAll() },
    { group: "Select", keys: ["Ctrl+Space"], text: "Add this photo to the selection, or take it out", run: () => grid.toggle(grid.selection.focus) },
    { group: "Select", keys: ["Escape"], text: "Clear the selection", run: () => grid.clearSelection() },
    { group: "Help", keys: ["?"], text: "This list", run: () => app.openKeys() },
  ];
}

export const MOVES = [
  { keys: ["← → ↑ ↓"], text: "Move" },
  { keys: ["Home", "End"], text: "First and last photo" },
  { keys: ["Page Up", "Page Down"], text: "One screen up or down" },
  { keys: ["Shift + a move", "Shift + click"], text: "Select a range" },
  { keys: ["Ctrl + click"], text: "Select one more" },
];

export class Keyboard {
  constructor(app) {
    this.app = app;
    this.scopes = []; // functions that see a key first; true: done
    this.commands = new Map();
    for (const command of commandKeys(app)) {
      for (const key of command.keys) this.commands.set(key.toLowerCase(), command);
    }
    document.addEventListener("keydown", (event) => this.#handle(event));
  }

  push(scope) {
    this.scopes.push(scope);
    return () => (this.scopes = this.scopes.filter((each) => each !== scope));
  }

  #handle(event) {
    if (event.defaultPrevented || event.isComposing || event.altKey) return;
    if (this.app.isLoading) return event.preventDefault();
    const { target } = event;
    if (target.matches?.(TYPING)) {
      if (event.key === "Escape" && !target.closest("dialog")) this.#leaveField(target);
      return;
    }
    const onButton = target.matches?.("button, a, summary, input");
    if (onButton && ["Enter", " "].includes(event.key)) return;
    if (target.matches?.("input") && event.key.startsWith("Arrow")) return;
    for (const scope of [...this.scopes].reverse()) {
      const done = scope(event, nameOf(event));
      if (done) return event.preventDefault();
    }
    if (document.querySelector("dialog[open]:not(.preview)")) return;
    if (this.#move(event) || this.#run(event)) event.preventDefault();
  }

  // The keys are for the photos again.
  #leaveField(field) {
    field.blur();
    this.app.focusPhotos();
  }

  #move(event) {
    const { grid } = this.app;
    const within = event.target === document.body || grid.scroller.contains(event.target);
    const step = within && !event.ctrlKey && !event.metaKey ? grid.stepOf(event.key) : null;
    if (step === null || !this.app.isGridShown()) return false;
    grid.moveBy(step, { extend: event.shiftKey });
    return true;
  }

  #run(event) {
    for (const name of namesOf(event)) {
      const command = this.commands.get(name);
      const label = this.app.keys.classOf(name);
      if (!command && !label) continue;
      if (!event.repeat) {
        if (command) command.run();
        else this.app.commands.label(label);
      }
      return true;
    }
    return false;
  }
}

// "ctrl+z", "x", " " as "space".
export function nameOf(event) {
  const key = event.key === " " ? "space" : event.key.toLowerCase();
  return event.ctrlKey || event.metaKey ? `ctrl+${key}` : key;
}

// The key as it is printed, then by its place: layouts with other letters have the same keys.
export function namesOf(event) {
  const name = nameOf(event);
  const place = /^(?:Key|Digit|Numpad)([A-Z0-9])$/.exec(event.code)?.[1]?.toLowerCase();
  if (!place || /^[a-z0-9]$/.test(event.key.toLowerCase())) return [name];
  return [name, name.startsWith("ctrl+") ? `ctrl+${place}` : place];
}
