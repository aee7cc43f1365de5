// One key per class: digits first, then letters that no command uses. People may change them.

export const COMMAND_LETTERS = new Set(["x", "s", "u", "p", "n", "r"]);
export const FREE_KEYS = [..."1234567890abcdefghijklmnopqrstuvwxyz"].filter(
  (key) => !COMMAND_LETTERS.has(key),
);

export class ClassKeys extends EventTarget {
  constructor(run) {
    super();
    this.storageName = `infoshot-keys:${run}`;
    this.own = readOwn(this.storageName);
    this.names = [];
    this.keys = new Map();
  }

  setClasses(names) {
    this.names = names;
    this.keys = new Map();
    const taken = new Set();
    for (const name of names) {
      const key = this.own[name];
      if (key && FREE_KEYS.includes(key) && !taken.has(key)) {
        this.keys.set(name, key);
        taken.add(key);
      }
    }
    const free = FREE_KEYS.filter((key) => !taken.has(key));
    for (const name of names.filter((each) => !(each in this.own)).slice(0, free.length)) {
      this.own[name] = free.shift(); // kept: a class that is added later changes no other key
      this.keys.set(name, this.own[name]);
    }
    this.classes = new Map([...this.keys].map(([name, key]) => [key, name]));
    localStorage.setItem(this.storageName, JSON.stringify(this.own));
  }

  keyOf(name) {
    return this.keys.get(name) ?? "";
  }

  classOf(key) {
    return this.classes.get(key);
  }

  // Gives a class a key; the class that had it is left without one.
  assign(name, key) {
    const owner = this.classOf(key);
    if (key && owner && owner !== name) this.own[owner] = "";
    this.own[name] = key;
    this.#save();
  }

  // A class that is renamed keeps its key.
  rename(name, to) {
    this.own[to] = this.own[name] ?? "";
    delete this.own[name];
  }

  reset() {
    this.own = {};
    this.#save();
  }

  #save() {
    this.setClasses(this.names);
    this.dispatchEvent(new CustomEvent("change"));
  }
}

function readOwn(name) {
  try {
    return { ...JSON.parse(localStorage.getItem(name) ?? "{}") };
  } catch {
    return {};
  }
}
