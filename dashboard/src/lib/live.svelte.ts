// The stream from the node: its state, and its figures each second. Reconnects by itself, and never
// shows old numbers as if they were new.

import { Refusal, session as exchange } from './api'
import type { Figures, LiveBalancer, LivePool, NodeState, Standing } from './types'

/** Silence after which the stream counts as lost: figures come each second. */
const SILENCE_MS = 4000
const RETRY_MS_MAX = 10_000
const HISTORY_MAX = 600

type Sample = Pick<Figures, 'time' | 'requests' | 'errors_5xx' | 'p50_ms' | 'p99_ms'>

class Live {
  status = $state<'connecting' | 'live' | 'lost'>('connecting')
  node = $state.raw<NodeState | null>(null)
  /** When `node` came, on this page's clock. Countdowns run from here. */
  nodeAt = $state(0)
  figures = $state.raw<Figures | null>(null)
  /** Where there are browsers, and for those who may see sessions. */
  browsers = $state.raw<Standing | null>(null)
  /** When the last figures came. */
  heardAt = $state(0)
  /** This page's clock, by the second. */
  now = $state(Date.now())
  /** For charts: replaced, never changed. */
  history = $state.raw<Sample[]>([])

  /** Told when the session behind the stream is over. */
  whenEnded: () => void = () => {}

  private source: EventSource | null = null
  private timer: ReturnType<typeof setInterval> | undefined
  private retryAt = 0
  private retryMs = 0

  start(): void {
    this.stop()
    this.connect()
    this.timer = setInterval(() => this.tick(), 1000)
  }

  stop(): void {
    clearInterval(this.timer)
    this.source?.close()
    this.source = null
    this.node = null
    this.figures = null
    this.browsers = null
    this.history = []
    this.retryMs = 0
    this.status = 'connecting'
  }

  pool(key: string): LivePool | undefined {
    return this.node?.pools.find((pool) => pool.id === key || pool.name === key)
  }

  balancer(key: string): LiveBalancer | undefined {
    return this.node?.load_balancers.find((found) => found.id === key || found.name === key)
  }

  /** Seconds that a drain has left now. */
  drainLeft(told: number): number {
    return Math.max(0, Math.ceil(told - (this.now - this.nodeAt) / 1000))
  }

  private connect(): void {
    const source = new EventSource('/client/v4/usher/live')
    this.source = source
    this.heardAt = Date.now()
    source.addEventListener('state', (event) => {
      this.heard()
      const node: NodeState = JSON.parse(event.data)
      this.node = node
      this.nodeAt = Date.now()
      if (node.browsers.length === 0) this.browsers = null
    })
    source.addEventListener('history', (event) => {
      this.heard()
      this.history = JSON.parse(event.data)
    })
    source.addEventListener('figures', (event) => {
      this.heard()
      const figures: Figures = JSON.parse(event.data)
      this.figures = figures
      this.history = [...this.history.slice(1 - HISTORY_MAX), figures]
    })
    source.addEventListener('browsers', (event) => {
      this.heard()
      this.browsers = JSON.parse(event.data)
    })
    source.onerror = () => this.lose()
  }

  private heard(): void {
    this.heardAt = Date.now()
    this.retryMs = 0
    this.status = 'live'
  }

  private lose(): void {
    this.source?.close()
    this.source = null
    this.status = 'lost'
    this.figures = null
    this.retryMs = Math.min(RETRY_MS_MAX, Math.max(1000, this.retryMs * 2))
    this.retryAt = Date.now() + this.retryMs
  }

  private tick(): void {
    this.now = Date.now()
    if (this.source !== null && this.now - this.heardAt > SILENCE_MS) this.lose()
    if (this.source === null && this.now >= this.retryAt) void this.retry()
  }

  /** A stream that was refused does not say why, so the session is asked first. */
  private async retry(): Promise<void> {
    this.retryAt = Infinity
    const timer = this.timer
    try {
      await exchange('GET')
      if (timer === this.timer && this.source === null) this.connect()
    } catch (error) {
      if (timer !== this.timer) return
      if (error instanceof Refusal && error.status !== 0 && error.status < 500) {
        this.whenEnded()
      } else {
        this.lose()
      }
    }
  }
}

export const live = new Live()
