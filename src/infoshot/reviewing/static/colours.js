// One colour per class, by its name. Colours never carry a meaning alone.

const FIRST = [
  "#3b82c4", "#e0792b", "#3f9b55", "#c9474d", "#8b65c2", "#8a6350", "#d472b0", "#a39a1c",
  "#22a3b4", "#6478e0",
];
const GREY = "#8a929c";
const CONFIDENCE = ["#b9498f", "#8a5cd0", "#3f7fd6", "#1fa79a", "#7bbd45", "#e6c62e"];

// For photos without a label.
export const NO_CLASS = GREY;

// Numbers of colours for names: the same in every window, and no two alike.
export function numberColours(names, known = new Map()) {
  const numbers = new Map(known);
  const taken = new Set(names.filter((name) => known.has(name)).map((name) => known.get(name)));
  let nColours = FIRST.length;
  while (nColours < names.length) nColours *= 2;
  for (const name of [...names].filter((each) => !known.has(each)).sort()) {
    let number = hash(name) % nColours;
    while (taken.has(number)) number = (number + 1) % nColours;
    taken.add(number);
    numbers.set(name, number);
  }
  return numbers;
}

// FNV-1a, 32 bits.
function hash(text) {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value;
}

export function classColour(index) {
  if (index < 0 || index === undefined) return GREY;
  if (index < FIRST.length) return FIRST[index];
  const hue = (index * 137.508) % 360;
  const ring = Math.floor(index / FIRST.length) % 3;
  return hslToHex(hue, [0.5, 0.65, 0.4][ring], [0.52, 0.45, 0.62][ring]);
}

// From least to most confident, in steps.
export function confidencePalette(nSteps = 16) {
  return Array.from({ length: nSteps }, (_, step) => {
    const place = (step / (nSteps - 1)) * (CONFIDENCE.length - 1);
    const from = Math.min(Math.floor(place), CONFIDENCE.length - 2);
    return mix(CONFIDENCE[from], CONFIDENCE[from + 1], place - from);
  });
}

function mix(first, second, share) {
  const [a, b] = [first, second].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return toHex(a.map((value, channel) => value + share * (b[channel] - value)));
}

function hslToHex(hue, saturation, lightness) {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  return toHex(
    [0, 8, 4].map((offset) => {
      const k = (offset + hue / 30) % 12;
      return 255 * (lightness - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
    }),
  );
}

function toHex(channels) {
  return `#${channels.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;
}
