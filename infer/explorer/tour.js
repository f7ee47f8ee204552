// Ten questions, each of which moves the picture to its answer.

const LAST = String(data.config.N - 1);
const TOUR = [
  ["What does a Transformer do?", "It turns words into words. Each ribbon leads from an English word to one that it helps to write; at the right stands how sure the model is. Point at a word.",
    { block: "" }],
  ["What is in it?", "An encoder reads, a decoder writes. Every column is one of Figure 1’s boxes, with what it does to this sentence; choose one, and it opens.",
    { block: SELF("encoder", 0) }],
  ["Where does a word look?", "Each small map is a head. Which of them look straight at the word that is translated next? The ribbons follow your choice.",
    { block: CROSS(LAST), head: "0", layer: LAST }],
  ["How does it know where to look?", "A query is compared with every key; the products become weights. Under “All numbers” follow the four tables.",
    { block: CROSS(LAST), head: "0", layer: LAST, fold: "numbers", query: "2" }],
  ["Why divide by √d_k?", `A sum of ${data.config.d_k} products is large, and the softmax of large numbers is all or nothing: hardly any gradient flows back. `
    + "The model now runs without the division: compare the translation and its probability.",
    { block: SELF("encoder", 0), off: "scale" }],
  ["Why mask the future?", "In training the whole translation is there, and without the mask a word could look at its own answer. The empty corner is the mask; try without it.",
    { block: SELF("decoder", 0) }],
  ["What do positions do?", "Without them a sentence is a bag of words: also choose “words shuffled”, and the translation stays the same.",
    { block: "encoder/embedding", off: "positions" }],
  ["Does order matter, then?", "With positions, yes. The words are shuffled now: to the model that is another sentence, with another translation.",
    { block: "encoder/embedding", off: "order" }],
  ["How is the next word chosen?", "From the probabilities of all subwords, one place at a time. Press Play: each word reads only those before it.",
    { block: "softmax" }],
  ["Is the most probable word always taken?", "No: several translations grow side by side. Move α to 2 and the beam to 1, and see what changes.",
    { block: "", at: "beam" }],
];

let toured = null; // the step that is shown: not drawn again, as it is read out when it changes

function drawTour() {
  const root = element("tour");
  if (toured === at.tour) return;
  toured = at.tour;
  const n = at.tour === "" ? -1 : chosenOf("tour", TOUR.length);
  const lead = (text, to) => button(root, text, () => {
    const step = TOUR[to];
    if (!step) { go({ tour: "" }); return; }
    const { at: place = "tour", ...changes } = step[2];
    go({ off: "", fold: "", own: changes.head ?? "mean", head: "mean", pin: "", word: "", ...changes, tour: String(to) });
    element(place).scrollIntoView({ block: place === "tour" ? "nearest" : "start", behavior: calm.matches ? "auto" : "smooth" });
  }, to < n ? "before" : "next", "pill");
  redrawn(root, () => {
    if (n < 0) { lead("Take the tour: ten questions", 0); return; }
    const [question, answer] = TOUR[n];
    const text = make("p", undefined, root);
    make("strong", `${n + 1} of ${TOUR.length}: ${question} `, text);
    make("span", answer, text);
    if (n) lead("‹ before", n - 1);
    lead(n + 1 < TOUR.length ? "next ›" : "end", n + 1);
    if (n + 1 < TOUR.length) button(root, "skip the tour", () => go({ tour: "" }), "skip", "link");
  });
}
