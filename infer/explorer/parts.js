// What the views share: what is looked at, what was computed for it, and tables of numbers.

const data = JSON.parse(document.getElementById("data").textContent);
const element = id => document.getElementById(id);
const numbered = (count, text = n => n + 1) => [...Array(count).keys()].map(n => [n, text(n)]);

// Views by name: {title, controls, draw(root)}, each drawn from `model`, `at` and `now`. Controls are named after what
// they set in `at`: {text, options: () => [[value, text]]}, {text, range: () => [first, last, step]} or a text, {text, placeholder}.
const VIEWS = {};

const models = []; // the checkpoints, each opened when it is first looked at
let model;
let now = null; // {ids, output, inputs, trace, logits, choices, hypotheses, steps} of the sentence, once it is translated

// Of a corpus whose words are not told, those that are one piece of the vocabulary.
const COMPLETIONS = data.words.length ? data.words
  : data.tokenizer.pieces.filter(piece => /^▁\p{L}{2}/u.test(piece)).map(piece => piece.slice(1));

// What is looked at, all of it texts: the address has what differs from this.
const OPENING = {
  s: data.source, view: "words", kind: "cross", layer: String(data.config.N - 1), head: "0", query: "0", off: "", box: "", part: "", grown: "", token: "1", tour: "", stack: "decoder", word: "1", other: "", pos: "3", k: "2",
  checkpoint: String(data.checkpoints.length),
  beam: String(data.decoding.beam), alpha: String(data.decoding.alpha),
};
const at = {};

/* Opens the checkpoint that is looked at; after the last one comes the run's own choice of parameters. */
function open() {
  const n = Math.min(at.checkpoint, data.checkpoints.length) || 0;
  models[n] ??= openModel(data, data.checkpoints[n] && n);
  model = models[n];
}

/* Returns a number of `at`, from 0 and below a count. */
const chosenOf = (name, count) => Math.max(0, Math.min(Math.trunc(at[name]) || 0, count - 1));
const isOff = name => at.off.split(",").includes(name);

const PATHS = {
  encoder: n => `encoder/layer_${n}/self_attention`,
  decoder: n => `decoder/layer_${n}/self_attention`,
  cross: n => `decoder/layer_${n}/cross_attention`,
};
const kindOf = () => at.kind in PATHS ? at.kind : "cross";
const layerOf = () => chosenOf("layer", model.config.N);
const headOf = () => chosenOf("head", model.config.h);

/* Returns the measured roles of the heads of these parameters: none of other checkpoints. */
const roles = () => models[data.checkpoints.length] === model && data.measured?.roles || [];
const rolesOf = (kind, layer, head) => roles().filter(role =>
  role.kind === kind && role.layer === layer + 1 && role.head === head + 1);

const label = id => model.tokenizer.label(id);

/* Returns the names of queries and keys of the kind of attention that is looked at. */
function sides() {
  const sources = now.ids.map(label);
  if (kindOf() === "encoder") return { queries: sources, keys: sources };
  const inputs = now.inputs.map(label);
  return { queries: now.output.map((id, t) => `${inputs[t]} (next: ${label(id)})`),
    keys: kindOf() === "cross" ? sources : inputs };
}

// How the model can be changed: what the switch says, and what that adds to the engine's options.
const SWITCHES = {
  scale: [() => "no division by √d_k", () => ({ scale: false })],
  mask: [() => "no mask (the numbers are those of the whole translation, read at once)", () => ({ mask: false })],
  positions: [() => "no positions", () => ({ positions: false })],
  order: [() => "words shuffled", () => ({})],
  head: [() => `without ${headName()}`, () => factors(h => h !== headOf())],
  only: [() => `of its sub-layer only ${headName()}`, () => factors(h => h === headOf())],
};
const headName = () => `head ${headOf() + 1}, ${data.titles[kindOf()]}, layer ${layerOf() + 1}`;
const factors = stays => ({ heads: { [PATHS[kindOf()](layerOf())]: numbered(model.config.h).map(([h]) => Number(stays(h))) } });

const short = value => value === -Infinity ? "−∞"
  : (Math.abs(value) < 9.995 ? value.toFixed(2) : value.toFixed(1)).replace("-0.00", "0.00").replace("-", "−");
const share = p => p >= 0.0005 || p === 0 ? (100 * p).toFixed(1) + " %" : "< 0.1 %";

const COLUMNS = 32; // of a table at once

/* Draws a table that the arrow keys walk through; wide ones are seen 32 columns at a time.

`values` are [row][column]; `text(value)` is what a cell says and `heat(value)` how strong its colour is, from 0 to 1:
that of numbers is their size beside the largest of the table. */
function grid(root, { name, rows, columns, values, text = short, heat }) {
  const most = heat ? 1 : Math.max(1e-9, ...values.flatMap(row => Array.from(row, Math.abs)).filter(Number.isFinite));
  const strength = heat ?? (value => Number.isFinite(value) ? Math.abs(value) / most : 0);
  let first = 0;
  let place = [0, 0];
  const scroll = make("div", undefined, root, "scroll");
  const table = make("table", undefined, scroll, "grid");
  table.setAttribute("role", "grid");
  table.setAttribute("aria-label", name);
  table.setAttribute("aria-colcount", columns.length + 1);
  const cellAt = ([row, column]) => table.tBodies[0].rows[row].cells[column - first + 1];
  function show() {
    table.replaceChildren();
    const top = make("tr", undefined, make("thead", undefined, table));
    make("td", "", top);
    const seen = columns.slice(first, first + COLUMNS);
    for (const column of seen) make("th", column, top).scope = "col";
    const body = make("tbody", undefined, table);
    rows.forEach((row, r) => {
      const line = make("tr", undefined, body);
      make("th", row, line).scope = "row";
      seen.forEach((column, c) => {
        const value = values[r][first + c];
        const cell = make("td", text(value), line, "heat");
        cell.setAttribute("role", "gridcell");
        cell.setAttribute("aria-colindex", first + c + 2);
        cell.tabIndex = -1;
        cell.title = `${row}, ${column}`;
        cell.style.setProperty("--w", 100 * strength(value));
        cell.addEventListener("focus", () => { cellAt(place).tabIndex = -1; place = [r, first + c]; cell.tabIndex = 0; });
      });
    });
    place = [place[0], Math.max(first, Math.min(place[1], first + seen.length - 1))];
    cellAt(place).tabIndex = 0; // one stop for Tab
  }
  function turn(to) {
    first = to;
    show();
    pages.querySelector("span").textContent = `${first + 1} to ${Math.min(first + COLUMNS, columns.length)} of ${columns.length}`;
  }
  table.addEventListener("keydown", event => {
    const end = columns.length - 1;
    const [row, column] = place;
    const to = { ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowDown: [row + 1, column],
      ArrowUp: [row - 1, column], Home: [row, 0], End: [row, end] }[event.key];
    if (!to || !rows[to[0]] || to[1] < 0 || to[1] > end) return;
    event.preventDefault();
    const page = to[1] - to[1] % COLUMNS;
    if (page !== first) turn(page);
    cellAt(to).focus();
  });
  const pages = make("p", undefined, root, "pages");
  if (columns.length > COLUMNS) {
    for (const [sign, step, told] of [["‹", -COLUMNS, "columns before"], ["›", COLUMNS, "columns after"]]) {
      const button = make("button", sign, pages);
      button.type = "button";
      button.setAttribute("aria-label", `${name}: ${told}`);
      button.addEventListener("click", () => { if (columns[first + step] !== undefined) turn(first + step); });
    }
    make("span", undefined, pages);
    turn(0);
  } else show();
}

/* Draws a heading, an equation and a caption. */
function step(root, title, equation, caption) {
  make("h3", title, root);
  if (equation) {
    const line = make("p", undefined, root, "equation");
    equation.split(/([\^_])(\(.*?\)|[\wα])/).forEach((part, i, parts) => {
      if (i % 3 !== 1) make({ "^": "sup", _: "sub" }[parts[i - 1]] ?? "span", part, line);
    });
  }
  if (caption) make("p", caption, root, "caption");
}
