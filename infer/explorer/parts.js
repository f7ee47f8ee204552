const data = JSON.parse(document.getElementById("data").textContent);
const element = id => document.getElementById(id);
const range = count => [...Array(count).keys()];
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const slim = matchMedia("(max-width: 1080px)");
const { N, h: HEADS } = data.config;

let model; // once its numbers are read
let now = null; // all that was computed for the sentence, once it is translated
let looked = ""; // the word that is pointed at, named as a pinned one
let playing = 0; // how many words are there, while they come one by one

// What is chosen; the address has what differs from this. `pin` is a word, t3 of the target or s3 of the source; of
// the opened `block` a `part` is seen `from` a column on.
const OPENING = {
  s: data.source, layer: String(N - 1), head: "mean", block: "", part: "", from: "0", pin: "", off: "",
  beam: String(data.decoding.beam), alpha: String(data.decoding.alpha),
};
const at = {};

const chosenOf = (name, count) => Math.max(0, Math.min(Math.trunc(at[name]) || 0, count - 1));

// Blocks are named as the activations that they compute

const stackOf = block => block.startsWith("encoder") ? "encoder" : "decoder";
const kindOf = block => block.endsWith("cross_attention") ? "cross" : stackOf(block);
const layerIn = block => Number(block.match(/layer_(\d+)/)?.[1] ?? -1);
const nameOf = block => block.split("/").at(-1).replace("_", "-");
const numbered = count => range(count).map(n => [String(n), n + 1]);
const OF_HEAD = [["mean", "mean"], ...numbered(HEADS)];
const crossing = () => `decoder/layer_${chosenOf("layer", N)}/cross_attention`;

function blocksOf(stack, layers = range(N)) {
  const isDecoder = stack === "decoder";
  const names = ["self_attention", ...isDecoder ? ["cross_attention"] : [], "feed_forward"];
  const inside = layers.flatMap(n => names.map(name => `${stack}/layer_${n}/${name}`));
  return [`${stack}/embedding`, ...inside, ...isDecoder ? ["softmax"] : []];
}

function titleOf(block) {
  const layer = layerIn(block) < 0 ? "" : `, layer ${layerIn(block) + 1}`;
  const masked = /^decoder.*self/.test(block) ? "masked " : "";
  return `${stackOf(block) === "encoder" ? "Encoder" : "Decoder"}${layer}: ${masked}${nameOf(block)}`;
}

// Its number, or "mean".
function headIn(block) {
  const isChosen = at.head !== "mean" && (kindOf(block) === "cross" || block === at.block);
  return isChosen ? chosenOf("head", HEADS) : "mean";
}

function weightsOf(block, h = headIn(block)) {
  const rows = now.trace[`${block}/weights`];
  const width = rows[0].length / HEADS;
  const own = (row, n) => row.slice(n * width, (n + 1) * width);
  if (h !== "mean") return rows.map(row => own(row, Number(h)));
  return rows.map(row => own(row, 0).map((_, s) => total(range(HEADS).map(n => row[n * width + s])) / HEADS));
}

const wordOf = (id, side = model.target) => id === EOS ? "end" : id === BOS ? "start" : side.label(id).trim();
const LANGUAGES = new Intl.DisplayNames(["en"], { type: "language" });
const language = code => { try { return LANGUAGES.of(code); } catch { return code; } };
const [SOURCE, TARGET] = data.about.languages.map((code, side) => code ? language(code) : ["source", "target"][side]);
const share = p => p < 0.0995 ? percent(p) : `${Math.round(100 * p)} %`;
const short = value => value === -Infinity ? "−∞" : value.toFixed(2).replace("-", "−");

function emptied(id) {
  element(id).replaceChildren();
  return element(id);
}

function chips(root, about, values, chosen, act) {
  const box = make("p.chips", undefined, root, { role: "group", "aria-label": about });
  for (const [value, text] of values) {
    const click = () => act(value);
    const isOn = [chosen].flat().includes(value);
    make("button", text, box, { click, "aria-pressed": isOn, "data-key": `${about} ${value}` });
  }
  return box;
}

function slider(root, name, text, min, max, step = 1) {
  const label = make("label.key", text, root);
  const change = ({ target }) => go({ [name]: target.value });
  make("input", undefined, label, { type: "range", min, max, step, value: at[name], "data-key": name, change });
  make("output", at[name], label);
}

function bars(root, rows, name = "") {
  const list = make(`dl.${name}`, undefined, root);
  for (const [text, p, isOwn] of rows) {
    make("dt", text, list);
    make(isOwn ? "i.decoder" : "i", undefined, list, { style: `width: ${100 * p}%` });
    make("dd", share(p), list);
  }
}
