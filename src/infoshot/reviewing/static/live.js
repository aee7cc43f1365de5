// Events of the server: answers of other windows, results of the solver. Reconnects automatically.

const WAITS = [0.3, 0.6, 1.2, 2.5, 5, 10];
const HIDDEN_MS = 60000; // browsers allow six connections to a server; a hidden tab gives up its own
const NAMES = ["entry", "solve", "map", "groups", "enough", "finished"];

export class Live extends EventTarget {
  constructor(store, client) {
    super();
    this.store = store;
    this.client = client;
    this.nFailures = 0;
    this.connected = false;
    document.addEventListener("visibilitychange", () => this.#followVisibility());
  }

  connect() {
    clearTimeout(this.timer);
    this.source?.close();
    const query = new URLSearchParams({ since: this.store.seen, client: this.client });
    this.source = new EventSource(`/api/events?${query}`);
    this.source.addEventListener("open", () => this.#opened());
    this.source.addEventListener("error", () => this.#lost());
    this.source.addEventListener("reload", () => location.reload()); // the run has other photos now
    for (const name of NAMES) {
      this.source.addEventListener(name, (event) => this.emit(name, JSON.parse(event.data)));
    }
  }

  // For a person who does not want to wait.
  reconnect() {
    if (!this.connected) this.connect();
  }

  #opened() {
    const again = this.nFailures > 0 || this.wasHidden;
    this.connected = true;
    this.emit("connected", { again, restarted: this.nFailures > 0 });
    this.nFailures = 0;
    this.wasHidden = false;
  }

  #lost() {
    this.source.close();
    this.connected = false;
    const seconds = WAITS[Math.min(this.nFailures, WAITS.length - 1)];
    this.nFailures += 1;
    this.timer = setTimeout(() => this.connect(), 1000 * seconds);
    this.emit("lost");
  }

  #followVisibility() {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => {
        this.source?.close();
        this.connected = false;
        this.wasHidden = true;
      }, HIDDEN_MS);
    } else {
      this.reconnect();
    }
  }

  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
