// Numbers and dates as people read them.

const COUNT = new Intl.NumberFormat("en");

export function count(number) {
  return COUNT.format(number);
}

export function photos(number) {
  return number === 1 ? "1 photo" : `${count(number)} photos`;
}

// 0.953 -> "95.3 %"; whole percents where the digits say nothing more.
export function percent(share, digits = 0) {
  if (share === null || share === undefined) return "";
  const text = (100 * share).toFixed(digits);
  return `${digits ? text.replace(/\.0+$/, "") : text}\u00a0%`;
}

export function clock(time) {
  const date = new Date(time);
  const today = new Date().toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" })
    : date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

// How a label is shown: "(none)" is an answer, an empty label is no answer.
export function labelText(label, none) {
  if (label === none) return "none of the classes";
  return label === "" ? "no label" : label;
}
