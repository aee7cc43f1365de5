// Every request to the server, and the two ways in which one fails.

// The server answered, and said no.
export class Refused extends Error {
  constructor(status, body) {
    super(asSentence(body.error ?? `The server answered with status ${status}.`));
    this.status = status;
    this.conflicts = body.conflicts ?? [];
  }
}

function asSentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// No answer came: the server has stopped, or is being started again.
export class Unreachable extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
  if (response.status >= 502) throw new Unreachable();
  if (!response.ok) {
    throw new Refused(response.status, await response.json().catch(() => ({})));
  }
  return response;
}

// The connection may break in the middle of an answer.
async function read(body) {
  try {
    return await body;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
}

async function getJson(path) {
  return read((await send(path)).json());
}

async function getBytes(path, options) {
  return read((await send(path, options)).arrayBuffer());
}

async function post(path, body) {
  const response = await send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  return read(response.json());
}

export const getState = () => getJson("/api/state");
export const getItems = async (ids) => (await getJson(`/api/items?ids=${ids.join(",")}`)).items;
export const getGroups = async () => (await getJson("/api/groups")).groups;
export const getAudit = () => getJson("/api/audit");
export const getEnough = () => getJson("/api/enough");
export const postAnswers = (body) => post("/api/answers", body);
export const postUndo = (body) => post("/api/undo", body);
export const postClasses = (body) => post("/api/classes", body);
export const postGoal = (body) => post("/api/goal", body);
export const postFinish = (body) => post("/api/finish", body);

export async function getView(query, signal) {
  const entries = Object.entries(query).filter(([, value]) => value !== "" && value !== null);
  return new Int32Array(await getBytes(`/api/view?${new URLSearchParams(entries)}`, { signal }));
}

export async function getHistory(before, limit) {
  const from = before === null ? "" : `before=${before}&`;
  return (await getJson(`/api/history?${from}limit=${limit}`)).entries;
}

// Label number, confidence and flags of every photo.
export async function getPoints() {
  const bytes = new DataView(await getBytes("/api/points"));
  const n = bytes.byteLength / 4;
  const points = { label: new Uint16Array(n), confidence: new Uint8Array(n), flags: new Uint8Array(n) };
  for (let i = 0; i < n; i += 1) {
    points.label[i] = bytes.getUint16(4 * i, true);
    points.confidence[i] = bytes.getUint8(4 * i + 2);
    points.flags[i] = bytes.getUint8(4 * i + 3);
  }
  return points;
}

export const ANSWERED_FLAG = 1;

// Whether the server can make a picture; fails if the server does not answer.
export async function canShowPicture(id, size) {
  try {
    await send(`/image/${id}?size=${size}`, { cache: "no-store" });
    return true;
  } catch (error) {
    if (error.status === 404) return false;
    throw error;
  }
}

// The projection, or null while there is none.
export async function getMap() {
  try {
    const response = await send("/api/map");
    const name = response.headers.get("X-Projection");
    return { name, xy: new Float32Array(await response.arrayBuffer()) };
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}
