// The model changed: switches, each with what it adds to the engine's options, and what the translation was before.

const SWITCHES = {
  scale: ["no division by √d_k", () => ({ scale: false })],
  mask: ["no mask", () => ({ mask: false })],
  positions: ["no positions", () => ({ positions: false })],
  order: ["words shuffled", () => ({})],
};
let unchanged = {}; // the last sentence, and how the model translates it with nothing changed

/* Returns the switches that are on; what else an address names is none. */
function switched() {
  const blocks = [...blocksOf("encoder"), ...blocksOf("decoder")];
  return at.off.split(",").filter(name => {
    const [what, block, h] = name.split(":");
    return Object.hasOwn(SWITCHES, name) || ["out", "only"].includes(what) && blocks.includes(block) && isAttention(block) && h < data.config.h;
  });
}
const isOff = name => switched().includes(name);

/* Returns the switch of a head, which names what it does with which: "out:decoder/layer_1/cross_attention:2". */
const headSwitch = (what, block, h) => `${what}:${block}:${h}`;

function switchName(name) {
  if (SWITCHES[name]) return SWITCHES[name][0];
  const [what, block, h] = name.split(":");
  const told = `head ${+h + 1}, ${data.titles[kindOf(block)]}, layer ${layerIn(block) + 1}`;
  return what === "out" ? `without ${told}` : `of its sub-layer only ${told}`;
}

/* Returns the engine's options, with the switches' if they count. */
function optionsOf(names) {
  const beam = chosenOf("beam", 9) || 1;
  const options = { beam, nbest: beam, alpha: +at.alpha || 0 };
  const heads = {};
  for (const name of names) {
    if (SWITCHES[name]) { Object.assign(options, SWITCHES[name][1]()); continue; }
    const [what, block, h] = name.split(":");
    const earlier = heads[block] ?? range(data.config.h).map(() => 1);
    heads[block] = earlier.map((factor, n) => (n === +h) === (what === "out") ? 0 : factor);
  }
  return names.length ? { ...options, heads } : options;
}

/* Returns the words in another order, if they have one. */
function inOtherOrder(ids) {
  for (let seed = 1; seed < 20; seed++) {
    const other = shuffled(model, ids, seed);
    if (other.join() !== ids.join()) return other;
  }
  return ids;
}

/* Makes buttons that change the model. */
function whatIf(root, names) {
  const box = make("div", undefined, root, "whatif");
  make("p", "What if this were otherwise? The model translates again.", box, "key");
  const chips = make("p", undefined, box, "chips");
  const toggled = name => {
    const [what, ...where] = name.split(":");
    const other = [what === "out" ? "only" : "out", ...where].join(":"); // a head cannot be out and alone
    return (isOff(name) ? switched().filter(one => one !== name) : [...switched().filter(one => one !== other), name]).join();
  };
  const own = { scale: `no division by √d_k (√${data.config.d_k} = ${Math.sqrt(data.config.d_k).toFixed(1)})` };
  for (const name of ["", ...names]) {
    const [what, , h] = name.split(":");
    const text = name === "" ? "as trained" : own[name] ?? SWITCHES[name]?.[0] ?? (what === "out" ? `head ${+h + 1} out` : `only head ${+h + 1}`);
    const one = button(chips, text, () => go({ off: name ? toggled(name) : "" }), `switch ${name}`);
    one.setAttribute("aria-pressed", name ? isOff(name) : !switched().length);
  }
  if (!switched().length) return;
  tellChange(make("p", undefined, box, "outcome"));
}

/* Writes the translation with what differs from the unchanged model's. */
function tellChange(root) {
  for (const [tag, text] of differences(unchanged.text.split(" "), now.hypotheses[0].text.split(" "))) {
    make(tag, text, root);
    root.append(" ");
  }
  if (!now.hypotheses[0].text) root.append("(nothing at all)");
  make("small", `probability ${share(now.p)}; as trained ${share(Math.exp(unchanged.log_prob))}`, root);
}

/* Says above the figure what is changed. */
function tellSwitches() {
  const root = element("changed");
  root.hidden = !switched().length || !now;
  root.replaceChildren();
  if (root.hidden) return;
  make("b", `Changed: ${switched().map(switchName).join("; ")}. `, root);
  make("span", `As trained it wrote “${unchanged.text}”, ${share(Math.exp(unchanged.log_prob))}. `, root);
  if (isOff("order")) make("span", `It read “${model.tokenizer.decode(now.ids)}”. `, root);
  if (isOff("mask")) make("span", "Without the mask the numbers are those of the whole translation, read at once. ", root);
  button(root, "Back to as trained", () => go({ off: "" }), "as trained", "link");
}

/* Returns the words of b and, as "del", those of a that are gone, by a longest common subsequence. */
function differences(a, b) {
  const common = range(a.length + 1).map(() => Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i][j] = a[i] === b[j] ? 1 + common[i + 1][j + 1] : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      parts.push(["span", b[j++]]);
      i++;
    } else if (i < a.length && (j === b.length || common[i + 1][j] >= common[i][j + 1])) parts.push(["del", a[i++]]);
    else parts.push(["ins", b[j++]]);
  }
  return parts;
}
