// All components by one name: `import { dataList, badge } from "../components/index.js"`.

export { askFirst } from "./ask.js";
export { lineChart, progress, stackBar } from "./charts.js";
export { copyable, twinTexts, twins } from "./copying.js";
export { ago, bytes, compact, day, duration, number, when } from "./figures.js";
export { form } from "./form.js";
export { dataList } from "./list.js";
export { eachOf } from "./many.js";
export { badge, facts, fold, jsonView } from "./pieces.js";
export { busy, orProblem, problemBox, say } from "./problem.js";
export { signFirst } from "./signing.js";
export { tabs } from "./tabs.js";
