// Who is signed in, and what they may do.

import { Refusal, session as exchange, speakFor, whenLost } from './api'
import { live } from './live.svelte'

interface Told {
  csrf: string
  name: string
  permissions: string[]
  expires_in: number
}

class Session {
  status = $state<'asking' | 'out' | 'in'>('asking')
  name = $state('')
  permissions = $state<string[]>([])
  /** On the clock of this page, in ms. */
  private endsAt = Infinity
  /** Why the sign-in page is shown to somebody who was signed in. */
  notice = $state('')

  constructor() {
    const ended = () => {
      const late = performance.now() >= this.endsAt
      const why = late ? 'its time is over' : 'the node was started again, or its token may no more'
      this.ended(`Your session has ended: ${why}. Sign in again to go on; this page is kept.`)
    }
    whenLost(ended)
    live.whenEnded = ended
  }

  /** Goes on with the cookie of before, if there is one. */
  async resume(): Promise<void> {
    try {
      this.begin((await exchange<Told>('GET')).result)
    } catch (error) {
      const silent = error instanceof Refusal && error.status !== 0
      this.notice = silent ? '' : 'The node does not answer. Is it running?'
      this.status = 'out'
    }
  }

  async signIn(token: string): Promise<void> {
    this.begin((await exchange<Told>('POST', { token })).result)
  }

  async signOut(): Promise<void> {
    try {
      await exchange('DELETE')
    } finally {
      this.ended('')
    }
  }

  ended(notice: string): void {
    if (this.status !== 'in') return
    live.stop()
    speakFor('')
    this.notice = notice
    this.status = 'out'
  }

  may(permission: string): boolean {
    const [product] = permission.split(':')
    return this.permissions.some(
      (held) => held === 'admin' || held === permission || held === `${product}:edit`,
    )
  }

  /** May change pools, monitors and load balancers. */
  get edits(): boolean {
    return this.may('load_balancing:edit')
  }

  private begin(told: Told): void {
    speakFor(told.csrf)
    this.name = told.name
    this.permissions = told.permissions
    this.endsAt = performance.now() + told.expires_in * 1000
    this.notice = ''
    this.status = 'in'
    live.start()
  }
}

export const session = new Session()
