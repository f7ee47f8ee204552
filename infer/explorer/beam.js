// Beam search, step by step, and the translations that it found.

const COUNTS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"];
let beamOf = null; // what the section shows

/* Returns the last step of the search that is drawn: at first all. */
const grownOf = () => at.grown === "" ? now.steps.length - 1 : chosenOf("grown", now.steps.length + 1) - 1;

function drawBeam() {
  const shown = [now, at.grown, at.beam, at.alpha, slim.matches];
  if (beamOf?.every((one, n) => one === shown[n])) return;
  beamOf = shown;
  const root = element("beam");
  redrawn(root, () => {
    const { beam } = now.options;
    make("h2", beam > 1 ? `Beam search: ${COUNTS[beam]} beginnings at a time` : "Greedy search: one beginning", root);
    make("p", beam > 1 ? `The model does not bet on one word at a time: at each step it keeps the ${COUNTS[beam]} most probable beginnings. `
      + "The best is in colour, others that reached the end in black, those that fell behind in grey."
      : "A beam of one takes the most probable word at each step, and never looks back.", root, "say");
    const controls = make("div", undefined, root, "controls");
    slider(controls, "beam", "beam", [1, 8, 1]);
    slider(controls, "alpha", "α, of the length penalty", [0, 2, 0.1]);
    slider(controls, "grown", "steps of the search", [1, now.steps.length, 1], grownOf() + 1);
    const steps = now.steps.slice(0, grownOf() + 1);
    const isWhole = steps.length === now.steps.length;
    beamTree(make("div", undefined, root), { steps: isWhole ? steps : steps.map(nodes => nodes.map(node => ({ ...node, rank: 0 }))) });
    drawEnds(root, steps);
  });
}

/* Draws all that has ended, the best first, with what differs from the best underlined. */
function drawEnds(root, steps) {
  const ended = steps.flatMap((nodes, n) => nodes.filter(node => node.score !== null).map(node => ({ ...node, length: n + 1 })));
  ended.sort((a, b) => b.score - a.score);
  if (!ended.length) make("p", "Nothing has ended yet.", root, "key");
  const list = make("ol", undefined, root, "ends");
  const best = ended[0]?.text.split(" ");
  ended.slice(0, Math.max(4, now.options.beam)).forEach((node, n) => {
    const line = make("li", undefined, list);
    make("span", n + 1, line);
    const text = make("p", undefined, line);
    text.lang = data.about.languages[1];
    const words = n ? differences(best, node.text.split(" ")).filter(([tag]) => tag !== "del") : best.map(word => ["span", word]);
    for (const [tag, word] of words) {
      make(tag === "ins" ? "mark" : "span", word, text);
      text.append(" ");
    }
    if (!node.text) text.append("(empty)");
    make("span", share(Math.exp(node.log_prob)), line);
    make("span", `score ${short(node.score)}`, line);
  });
  const penalty = data.decoding.length_penalty === "power" ? "length^α" : "((5 + length) / 6)^α";
  formula(root, `score = log p / ${penalty}`);
  make("p", "log p falls with every subword, so without a penalty (α = 0) short translations win.", root, "key");
}
