// Texts of the audit log.

import { add } from "../i18n.js";

add("audit", {
  en: {
    title: "Audit log",
    intro: "Every action of a key: what it changed, when, and how the API answered. Requests that only submit work are not among them.",
    actor: "Actor",
    actorHint: "key ID, admin, or admin NAME",
    action: "Action",
    actionHint: "method and path of the route",
    time: "Time",
    from: "From",
    until: "Until",
    target: "Address",
    who: "Operator",
    reason: "Reason",
    given: "Given",
    status: "Answer",
    unknown: "unknown",
    unknownHint: "The process ended before the answer was known.",
    empty: "No action was recorded yet.",
  },
  zh: {
    title: "审计日志",
    intro: "每个密钥的每次操作：改动了什么、何时、API 如何响应。仅提交工作的请求不在其中。",
    actor: "操作方",
    actorHint: "key 编号、admin 或 admin 名称",
    action: "操作",
    actionHint: "路由的方法和路径",
    time: "时间",
    from: "从",
    until: "到",
    target: "地址",
    who: "操作员",
    reason: "原因",
    given: "请求内容",
    status: "响应",
    unknown: "未知",
    unknownHint: "进程在得知响应之前已结束。",
    empty: "尚无操作记录。",
  },
});
