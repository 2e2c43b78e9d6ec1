/**
 * A Stryker plugin that leaves the texts of errors and assertions alone: people read them, no code decides by them.
 * Whether an error is thrown, of which class, and the other arguments remain mutated.
 */

const MESSAGES = /^(assert|\w*Error)$/;
/** Which argument of these is the sentence; the others say what is rejected, and why in a word. */
const SENTENCES = { reject: 2, rejectInput: 3, rejection: 3 };

function isText(node) {
  return node.type === 'StringLiteral' || node.type === 'TemplateLiteral';
}

export const strykerPlugins = [
  {
    kind: 'Ignore',
    name: 'message-texts',
    value: {
      shouldIgnore({ node, parent }) {
        const calls = parent?.type === 'NewExpression' || parent?.type === 'CallExpression';
        const called = calls && isText(node) && parent.callee.type === 'Identifier' ? parent.callee.name : '';
        const name = parent?.callee?.name ?? parent?.callee?.property?.name;
        const isSentence = calls && isText(node) && parent.arguments.indexOf(node) === SENTENCES[name];
        return MESSAGES.test(called) || isSentence ? 'the text of an error, read by people only' : undefined;
      },
    },
  },
];
