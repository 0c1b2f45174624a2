// The package: the client without the page, for other programs (docs/another-language.md, section 11).
export {checkAdmission, fetchRound, goOn, type Kept, prepareAnswer, type Shown, type Step, termsOf} from "./answering.js";
export {type Bytes, fromBase64Url, fromHex, hex, randomBytes} from "./bytes.js";
export {Gateway} from "./calls.js";
export {admit, LargerBefore, LimitExceeded, OtherPerson, SeriesFull, spent} from "./counting.js";
export {chain, type Deployment, type Limit, readStatement, type Service} from "./deployment.js";
export {signedBy} from "./documents.js";
export {readRound, type Terms} from "./manifest.js";
export {type Answer, answerId, type KeptReport, Outbox} from "./outbox.js";
export type {Answerable} from "./question.js";
export {drawAnswer, encodeReport, probabilities, randomize, rightAtMost} from "./randomize.js";
export {Distrust, NeedsProgram, PromiseChanged, Refused} from "./refusals.js";
export {fetchResult, missingAt} from "./results.js";
export {type Prepared, Round, type Sealed} from "./round.js";
export {fetchSurvey, newestWave, type ShownSurvey} from "./shown_survey.js";
export {checkContinues, invitationHash, invitedKey, readSurvey, type Survey} from "./survey.js";
export {checkAgreed, follow, readNewest, readSigned, readVersions, type SignedVersion} from "./versions.js";
export * as messages from "./gen/croupier/protocol/v1/messages_pb.js";
