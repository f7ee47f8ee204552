// All numbers of a block: its activations as tables, and one head of attention from its query to what it adds.

const COLUMNS = 32; // of a table at once

/* Draws a table that the arrow keys walk through; wide ones are seen 32 columns at a time.

`values` are [row][column]; `text(value)` is what a cell says and `heat(value)` how strong its colour is, from 0 to 1:
numbers are coloured by their size next to the largest of the table, those below zero in grey. */
function grid(root, { name, rows, columns, values, text = short, heat }) {
  const most = heat ? 1 : Math.max(1e-9, ...values.flatMap(row => Array.from(row, Math.abs)).filter(Number.isFinite));
  const strength = heat ?? (value => Number.isFinite(value) ? Math.abs(value) / most : 0);
  let first = 0;
  let place = [0, 0];
  const table = make("table", undefined, make("div", undefined, root, "scroll"), "grid");
  table.setAttribute("role", "grid");
  table.setAttribute("aria-label", name);
  table.setAttribute("aria-colcount", columns.length + 1);
  const cellAt = ([row, column]) => table.tBodies[0].rows[row].cells[column - first + 1];
  function show() {
    table.replaceChildren();
    const top = make("tr", undefined, make("thead", undefined, table));
    make("td", "", top);
    const seen = columns.slice(first, first + COLUMNS);
    for (const one of seen) make("th", one, top).scope = "col";
    const body = make("tbody", undefined, table);
    rows.forEach((row, r) => {
      const line = make("tr", undefined, body);
      make("th", row, line).scope = "row";
      seen.forEach((one, c) => {
        const value = values[r][first + c];
        const cell = make("td", text(value), line, !heat && value < 0 ? "heat below" : "heat");
        cell.setAttribute("role", "gridcell");
        cell.setAttribute("aria-colindex", first + c + 2);
        cell.tabIndex = -1;
        cell.title = `${row}, ${one}`;
        cell.style.setProperty("--w", 100 * strength(value));
        cell.addEventListener("focus", () => { cellAt(place).tabIndex = -1; place = [r, first + c]; cell.tabIndex = 0; });
      });
    });
    place = [place[0], Math.max(first, Math.min(place[1], first + seen.length - 1))];
    cellAt(place).tabIndex = 0; // one stop for Tab
  }
  const pages = make("p", undefined, root, "pages");
  function turn(to) {
    first = to;
    show();
    pages.querySelector("span").textContent = `${first + 1} to ${Math.min(first + COLUMNS, columns.length)} of ${columns.length}`;
  }
  table.addEventListener("keydown", event => {
    const end = columns.length - 1;
    const [row, one] = place;
    const to = { ArrowRight: [row, one + 1], ArrowLeft: [row, one - 1], ArrowDown: [row + 1, one],
      ArrowUp: [row - 1, one], Home: [row, 0], End: [row, end] }[event.key];
    if (!to || !rows[to[0]] || to[1] < 0 || to[1] > end) return;
    event.preventDefault();
    const page = to[1] - to[1] % COLUMNS;
    if (page !== first) turn(page);
    cellAt(to).focus();
  });
  if (columns.length <= COLUMNS) { pages.remove(); show(); return; }
  for (const [sign, by, told] of [["‹", -COLUMNS, "columns before"], ["›", COLUMNS, "columns after"]]) {
    const one = make("button", sign, pages);
    one.type = "button";
    one.setAttribute("aria-label", `${name}: ${told}`);
    one.addEventListener("click", () => { if (columns[first + by] !== undefined) turn(first + by); });
  }
  make("span", undefined, pages);
  turn(0);
}

/* Returns a block's activations as [name in the trace, text]: what it computes, then what Add & Norm makes of it. */
function partsOf(block) {
  if (block === "softmax") return [...data.config.norm === "pre" ? [["decoder/final_norm", "final norm"]] : [], ["logits", "logits"]];
  if (block.endsWith("embedding")) return [[block, "output"]];
  const [stack, layer, name] = block.split("/");
  const inner = name === "feed_forward" ? ["hidden"] : ["q", "k", "v", "products", "scores", "weights", "heads"];
  const place = name === "self_attention" ? 1 : name === "cross_attention" || stack === "encoder" ? 2 : 3;
  const around = [[`${stack}/${layer}/sum_${place}`, "sum"], [`${stack}/${layer}/norm_${place}`, "norm"]];
  const parts = [...inner.map(one => [`${block}/${one}`, one]), [block, "output"], ...around];
  const isLast = stack === "encoder" && data.config.norm === "pre" && layerIn(block) === data.config.N - 1 && name === "feed_forward";
  return isLast ? [...parts, ["encoder/final_norm", "final norm"]] : parts;
}

function drawNumbers(root, block) {
  const parts = partsOf(block);
  const [name, text] = parts.find(([one]) => one === at.part) ?? parts.find(([, one]) => ["output", "logits"].includes(one));
  const line = make("p", undefined, root, "chips");
  for (const [one, told] of parts.length > 1 ? parts : []) {
    button(line, told, () => go({ part: one }), `part ${one}`).setAttribute("aria-pressed", one === name);
  }
  if (isAttention(block) && "kv".includes(text)) tellCache(root, block);
  drawActivation(root, name);
  if (isAttention(block)) drawHead(root, block);
}

/* Says of keys and values what of them is kept while the decoder writes. */
function tellCache(root, block) {
  const told = kindOf(block) === "cross" ? `Keys and values of the ${now.ids.length} source subwords: computed once, the same at each step.`
    : isOff("mask") ? "Without the mask nothing can be kept: each new word changes all before it, so all are read again."
      : stackOf(block) === "decoder" ? "These rows are the cache: one is added with each word read; those before are not computed again, since no word sees what comes later." : "";
  make("p", told, root, "key");
}

/* Draws an activation: a row a position, and what is in each column. */
function drawActivation(root, name) {
  const { shape, rows } = now.trace[name];
  const isSource = name.startsWith("encoder") || /cross_attention\/[kv]$/.test(name);
  const keys = name.startsWith("encoder") || name.includes("cross_attention") ? now.ids : now.inputs;
  const isOfKeys = /(products|scores|weights)$/.test(name);
  const inHead = (h, i) => `h${h + 1} ${isOfKeys ? wordOf(keys[i]) : i + 1}`;
  const columns = name === "logits" ? model.tokenizer.pieces.map((_, id) => label(id))
    : shape.length === 3 ? range(shape[1]).flatMap(h => range(shape[2]).map(i => inHead(h, i))) : range(shape[1]).map(i => String(i + 1));
  const said = shape.length === 3 ? `${shape[0]} positions × ${shape[1]} heads × ${shape[2]} ${isOfKeys ? "keys" : "numbers"}`
    : `${shape[0]} positions × ${shape[1]} numbers`;
  make("p", said, root, "key shape");
  grid(root, { name: `${name}, ${said}`, rows: (isSource ? now.ids : now.inputs).map(wordOf), columns, values: rows });
}

// One head, step by step

/* Returns what a head's output becomes by its rows of W^O. */
function throughOutput(path, output, h) {
  const { d_model, d_v } = model.config;
  const wo = model.tensors[`${path}/wo`].data;
  return Float32Array.from({ length: d_model }, (_, j) =>
    output.reduce((sum, value, e) => sum + value * wo[(h * d_v + e) * d_model + j], 0));
}

/* Says what the division and the mask do to this query. */
function tellDivision(products, t, isMasked) {
  const root = Math.sqrt(model.config.d_k);
  const last = isMasked ? t + 1 : products.length;
  const most = divisor => exact(Math.max(...softmax(products.slice(0, last).map(product => product / divisor))));
  const division = `Divided by √${model.config.d_k}, the largest weight is ${most(root)}; not divided, ${most(1)}. `;
  if (!isMasked || t + 1 === products.length) return division;
  const later = softmax(products.map(product => product / root)).slice(t + 1).reduce((sum, p) => sum + p, 0);
  return division + `Without the mask ${exact(later)} of the weight would be on the ${products.length - t - 1} subwords `
    + "that come later. In training those are the answer.";
}

function drawHead(root, block) {
  const { trace } = now;
  const { d_k, d_v, d_model, h: count, scale_attention } = model.config;
  const h = headIn(block) === "mean" ? 0 : headIn(block);
  const { queries, keys } = sidesOf(block);
  const t = chosenOf("query", queries.length);
  const own = name => head(trace[`${block}/${name}`], t, h);
  const ofKeys = name => keys.map((_, s) => head(trace[`${block}/${name}`], s, h));
  const isDivided = scale_attention && !isOff("scale");
  const weights = own("weights");
  const numbers = length => range(length).map(n => n + 1);

  make("h3", `Head ${h + 1}, from one query to what it adds`, root);
  const box = make("label", "query ", root, "key");
  const select = make("select", undefined, box);
  select.dataset.key = "query";
  queries.forEach((query, n) => { make("option", query, select).value = n; });
  select.value = t;
  select.addEventListener("change", () => go({ query: select.value }));
  make("p", tellDivision(own("products"), t, kindOf(block) === "decoder" && !isOff("mask")), root);

  step(root, "1. A query and the keys", "q = x W^Q,  k = x W^K", `“${queries[t]}” asks with ${d_k} numbers, and each key answers with as many.`);
  grid(root, { name: "query and keys", rows: ["q", ...keys.map(key => `k ${key}`)], columns: numbers(d_k), values: [own("q"), ...ofKeys("k")] });
  step(root, "2. How well they match: the weights", `softmax(q · k / √${d_k})`, "");
  const table = keys.map((_, s) => [own("products")[s], own("products")[s] / (isDivided ? Math.sqrt(d_k) : 1), own("scores")[s], weights[s]]);
  grid(root, { name: "from products to weights", rows: keys, columns: ["q · k", isDivided ? `/ √${d_k}` : "not divided", "mask", "softmax"],
    values: table.map(row => row.map((value, c) => [value, c])),
    text: ([value, c]) => c === 3 ? exact(value) : short(value), heat: ([value, c]) => c === 3 ? value : 0 });
  step(root, "3. The values, weighted and added", "z = Σ weight · v", "Before each value stands its weight; the sum is what this head passes on.");
  grid(root, { name: "values and their weighted sum", rows: [...keys.map((key, s) => `${exact(weights[s])} v ${key}`), "sum"],
    columns: numbers(d_v), values: [...ofKeys("v"), own("heads")] });
  step(root, "4. All heads, through the output matrix", "Concat(z_1, z_2, …) W^O = z_1 W_1^O + z_2 W_2^O + …",
    "What each head adds to this position, and their sum, which goes to Add & Norm.");
  const added = range(count).map(n => throughOutput(block, head(trace[`${block}/heads`], t, n), n));
  grid(root, { name: "what the heads add", rows: [...added.map((_, n) => `head ${n + 1}${n === h ? " (this)" : ""}`), "output"],
    columns: numbers(d_model), values: [...added, trace[block].rows[t]] });
}
